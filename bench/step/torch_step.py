#!/usr/bin/env python3
"""PyTorch's side of bench-step: a whole GPT-2 training step on random tokens, compiled, as fast as PyTorch does it here.

torch_step.py [--model 124M,345M,774M,1558M,1.3B] [--seconds 20] [--autocast]

bf16 weights (or fp32 weights under autocast), torch.compile, cuDNN's attention, fused AdamW, clip 1.0, no dropout, vocabulary
50304. Prints tokens/s over the second half of the time held, and checks first that the loss falls on one repeated batch.
"""
import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

SHAPES = {  # layers, hidden, heads, batch, sequence
    "124M": (12, 768, 12, 64, 1024), "345M": (24, 1024, 16, 32, 1024), "774M": (36, 1280, 20, 16, 1024),
    "1558M": (48, 1600, 25, 16, 1024), "1.3B": (24, 2048, 16, 8, 2048)}
VOCABULARY = 50304


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.fc1, self.fc2 = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        b, s, h = x.shape
        q, k, v = (t.view(b, s, self.heads, h // self.heads).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(h, 2))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(b, s, h))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, hidden, heads, length, vocabulary=VOCABULARY):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, hidden), nn.Embedding(length, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, labels):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def run(name, seconds, autocast):
    layers, hidden, heads, batch, length = SHAPES[name]
    torch.manual_seed(1)
    model = Gpt(layers, hidden, heads, length).cuda()
    model = model if autocast else model.bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    compiled = torch.compile(model)
    tokens = torch.randint(50257, (batch, length + 1), device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast), sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            loss = compiled(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    first = step().item()
    for _ in range(10):
        last = step()
    assert last.item() < first, (first, last.item())
    marks, begin = [], time.time()
    while time.time() - begin < seconds:
        for _ in range(5):
            step()
        torch.cuda.synchronize()
        marks.append(time.time())
    half = len(marks) // 2
    rate = 5 * (len(marks) - 1 - half) * batch * length / (marks[-1] - marks[half])
    print(f"{name} {batch}x{length} PyTorch {torch.__version__} {'autocast' if autocast else 'bf16 weights'}: "
          f"{rate:,.0f} tokens/s", flush=True)
    del model, optimizer, compiled
    torch.cuda.empty_cache()
    torch._dynamo.reset()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="124M,345M,1.3B")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--autocast", action="store_true")
    arguments = parser.parse_args()
    for model_name in arguments.model.split(","):
        run(model_name, arguments.seconds, arguments.autocast)
