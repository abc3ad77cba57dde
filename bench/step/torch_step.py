#!/usr/bin/env python3
"""PyTorch's side of bench-step: a whole GPT-2 training step on random tokens, compiled, as fast as PyTorch does it here.

torch_step.py [--model 124M,345M,774M,1558M,1.3B,6.7B,13B] [--seconds 20] [--autocast] [--micro-batch-size B] [--recompute]
torchrun --nproc-per-node N torch_step.py --shard ddp|fsdp ...

torch.compile, cuDNN's attention, fused AdamW, clip 1.0, no dropout, vocabulary 50304. Weights are bf16; under --autocast and with
--shard ddp fp32; with --shard fsdp (fully_shard of each block and of the rest) fp32 shards and bf16 in compute, gradients summed in
fp32. The batch is each rank's. Prints tokens/s of all ranks over the second half of the time held, and the most memory of a rank;
checks first that the loss falls on one repeated batch. --device cpu is for trying this file out.
"""
import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

SHAPES = {  # layers, hidden, heads, batch, sequence
    "124M": (12, 768, 12, 64, 1024), "345M": (24, 1024, 16, 32, 1024), "774M": (36, 1280, 20, 16, 1024),
    "1558M": (48, 1600, 25, 16, 1024), "1.3B": (24, 2048, 16, 8, 2048),
    "6.7B": (32, 4096, 32, 4, 2048), "13B": (40, 5120, 40, 2, 2048), "tiny": (2, 64, 2, 2, 64)}
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
    def __init__(self, layers, hidden, heads, length, vocabulary=VOCABULARY, recompute=False):
        super().__init__()
        self.recompute = recompute
        self.tokens, self.positions = nn.Embedding(vocabulary, hidden), nn.Embedding(length, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.reset()

    def reset(self):
        for module in self.modules():
            for name, p in module.named_parameters(recurse=False):
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)
                else:
                    nn.init.constant_(p, 1.0 if name == "weight" else 0.0)

    def forward(self, tokens, labels):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def build(name, o, device):
    """The model as it is called, and the parameters to be updated."""
    layers, hidden, heads, _, length = SHAPES[name]
    if o.shard != "fsdp":
        model = Gpt(layers, hidden, heads, length, recompute=o.recompute).to(device)
        model = model if o.autocast or o.shard else model.bfloat16()
        return torch.compile(DistributedDataParallel(model) if o.shard else model), model
    with torch.device("meta"):
        model = Gpt(layers, hidden, heads, length, recompute=o.recompute)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        block.compile()
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    model.to_empty(device=device)
    model.reset()
    return model, model


def run(name, o, device, rank, world):
    length, batch = SHAPES[name][4], o.micro_batch_size or SHAPES[name][3]
    cuda = device.type == "cuda"
    torch.manual_seed(1)
    compiled, model = build(name, o, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=cuda)
    torch.manual_seed(2 + rank)
    tokens = torch.randint(50257, (batch, length + 1), device=device)
    mixed = o.autocast or o.shard == "ddp"
    attention = [SDPBackend.CUDNN_ATTENTION] if cuda else [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]

    def step():
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=mixed), sdpa_kernel(attention):
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
    marks, begin, going = [], time.time(), torch.ones(1, device=device)
    while going.item() or len(marks) < 4:
        for _ in range(5):
            step()
        marks.append(time.time())
        going.fill_(time.time() - begin < o.seconds)
        if world > 1:  # all ranks end with the same step
            dist.broadcast(going, 0)
        elif cuda:
            torch.cuda.synchronize()
    half = (len(marks) - 1) // 2
    rate = 5 * (len(marks) - 1 - half) * batch * length * world / (marks[-1] - marks[half])
    how = {"": "autocast" if o.autocast else "bf16 weights", "ddp": "DDP", "fsdp": "FSDP2"}[o.shard]
    memory = torch.cuda.max_memory_allocated() / 1e9 if cuda else 0
    if rank == 0:
        print(f"{name} {batch}x{length} on {world}, PyTorch {torch.__version__} {how}{', recompute' if o.recompute else ''}: "
              f"{rate:,.0f} tokens/s, {memory:.1f} GB", flush=True)
    del model, optimizer, compiled
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    torch._dynamo.reset()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="124M,345M,1.3B")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--micro-batch-size", type=int)
    parser.add_argument("--shard", choices=["ddp", "fsdp"], default="")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--autocast", action="store_true")
    parser.add_argument("--recompute", action="store_true")
    o = parser.parse_args()
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    device = torch.device(o.device, int(os.environ.get("LOCAL_RANK", 0))) if o.device == "cuda" else torch.device(o.device)
    if o.device == "cuda":
        torch.cuda.set_device(device)
    if o.shard:
        dist.init_process_group("nccl" if o.device == "cuda" else "gloo")
    for name in o.model.split(","):
        run(name, o, device, rank, world)
    if o.shard:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
