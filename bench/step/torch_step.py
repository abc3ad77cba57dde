#!/usr/bin/env python3
"""PyTorch's side of bench-step: a whole GPT-2 training step on random tokens, compiled, as fast as
PyTorch does it here.

torch_step.py [--model 124M,345M,774M,1558M,1.3B,6.7B,13B,8B] [--layers L] [--seconds 20]
              [--autocast] [--micro-batch-size B] [--recompute]
              [--float8 tensorwise|rowwise|rowwise_with_gw_hp] [--lock FILE] [--warm]
torchrun --nproc-per-node N torch_step.py --shard ddp|fsdp ...

torch.compile, cuDNN's attention, fused AdamW, clip 1.0, no dropout, vocabulary 50304. Weights are
bf16; under --autocast and with --shard ddp fp32; with --shard fsdp (fully_shard of each block and
of the rest) fp32 shards and bf16 in compute, gradients summed in fp32. --float8 turns the blocks'
linear layers into torchao's; with fsdp and tensorwise, their weights are gathered in FP8. 8B is
Llama's (grouped queries, SwiGLU, RMSNorm, rotary), of which --layers takes the first L. The batch
is each rank's. Prints tokens/s of all ranks (the median of five steps each, over the second half of
the time held), the most memory of a rank, and on one GPU the power of that half; checks first that
the loss falls on one repeated batch. --lock waits for flock(1) of FILE once the step is compiled,
so that several may compile at once. --warm compiles into PyTorch's cache on disk, and ends.
--device cpu is for trying this file out.
"""

import argparse
import contextlib
import dataclasses
import fcntl
import os
import statistics
import subprocess
import threading
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
    "124M": (12, 768, 12, 64, 1024),
    "345M": (24, 1024, 16, 32, 1024),
    "774M": (36, 1280, 20, 16, 1024),
    "1558M": (48, 1600, 25, 16, 1024),
    "1.3B": (24, 2048, 16, 8, 2048),
    "6.7B": (32, 4096, 32, 4, 2048),
    "13B": (40, 5120, 40, 2, 2048),
    "tiny": (2, 64, 2, 2, 64),
    "8B": (32, 4096, 32, 1, 8192),
    "tiny-llama": (2, 64, 4, 2, 64),
}
# key and value heads, width of the MLP, vocabulary
LLAMAS = {"8B": (8, 14336, 128256), "tiny-llama": (2, 96, 512)}
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
        q, k, v = (
            t.view(b, s, self.heads, h // self.heads).transpose(1, 2)
            for t in self.qkv(self.norm1(x)).split(h, 2)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(b, s, h))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


class LlamaBlock(nn.Module):
    def __init__(self, hidden, heads, groups, width, length):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, hidden // heads
        self.norm1, self.norm2 = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.qkv = nn.Linear(hidden, (heads + 2 * groups) * self.size, bias=False)
        self.proj = nn.Linear(hidden, hidden, bias=False)
        self.fc1, self.fc2 = (
            nn.Linear(hidden, 2 * width, bias=False),
            nn.Linear(width, hidden, bias=False),
        )
        angle = torch.outer(
            torch.arange(length), 500000.0 ** (-torch.arange(0, self.size, 2) / self.size)
        )
        self.register_buffer("cos", torch.cat((angle, angle), -1).cos(), persistent=False)
        self.register_buffer("sin", torch.cat((angle, angle), -1).sin(), persistent=False)

    def rotate(self, x):
        a, b = x.chunk(2, -1)
        return x * self.cos.to(x.dtype) + torch.cat((-b, a), -1) * self.sin.to(x.dtype)

    def forward(self, x):
        b, s, _ = x.shape
        parts = self.qkv(self.norm1(x)).view(b, s, -1, self.size).transpose(1, 2)
        q, k, v = parts.split((self.heads, self.groups, self.groups), 1)
        attended = F.scaled_dot_product_attention(
            self.rotate(q), self.rotate(k), v, is_causal=True, enable_gqa=True
        )
        x = x + self.proj(attended.transpose(1, 2).reshape(b, s, -1))
        gate, up = self.fc1(self.norm2(x)).chunk(2, -1)
        return x + self.fc2(F.silu(gate) * up)


class Gpt(nn.Module):
    def __init__(self, layers, hidden, heads, length, llama=None, recompute=False):
        super().__init__()
        self.recompute = recompute
        groups, width, vocabulary = llama or (0, 0, VOCABULARY)
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.positions = None if llama else nn.Embedding(length, hidden)
        make = (
            (lambda: LlamaBlock(hidden, heads, groups, width, length))
            if llama
            else (lambda: Block(hidden, heads))
        )
        self.blocks = nn.ModuleList(make() for _ in range(layers))
        self.norm = nn.RMSNorm(hidden) if llama else nn.LayerNorm(hidden)
        self.output = nn.Linear(hidden, vocabulary, bias=False) if llama else None
        self.reset()

    def reset(self):
        for module in self.modules():
            for name, p in module.named_parameters(recurse=False):
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)
                else:
                    nn.init.constant_(p, 1.0 if name == "weight" else 0.0)

    def forward(self, tokens, labels):
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        logits = F.linear(self.norm(x), (self.output or self.tokens).weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def in_float8(model, o):
    """Turns the blocks' linear layers into torchao's; returns what is called after each update."""
    if not o.float8:
        return lambda: None
    from torchao import float8

    config = float8.Float8LinearConfig.from_recipe_name(o.float8)
    gather = o.shard == "fsdp" and o.float8 == "tensorwise"
    if gather:
        config = dataclasses.replace(config, enable_fsdp_float8_all_gather=True)
    float8.convert_to_float8_training(model.blocks, config=config)
    return (
        (lambda: float8.precompute_float8_dynamic_scale_for_fsdp(model))
        if gather
        else lambda: None
    )


def build(name, o, device):
    """The model as it is called, the parameters to be updated, and what follows each update."""
    layers, hidden, heads, _, length = SHAPES[name]
    layers, llama = o.layers or layers, LLAMAS.get(name)
    if o.shard != "fsdp":
        model = Gpt(layers, hidden, heads, length, llama, recompute=o.recompute).to(device)
        model = model if o.autocast or o.shard else model.bfloat16()
        after = in_float8(model, o)
        return torch.compile(DistributedDataParallel(model) if o.shard else model), model, after
    with torch.device("meta"):
        model = Gpt(layers, hidden, heads, length, llama, recompute=o.recompute)
    after = in_float8(model, o)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        block.compile()
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    model.to_empty(device=device)
    model.reset()
    return model, model, after


@contextlib.contextmanager
def alone(path):
    """Holds flock(1) of path, if there is one."""
    if not path:
        yield
        return
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Power:
    """Reads the watts of the only GPU ten times a second."""

    def __init__(self):
        self.readings = []
        command = [
            "nvidia-smi",
            "--query-gpu=power.draw",
            "--format=csv,noheader,nounits",
            "-lms",
            "100",
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.readings.append((time.time(), float(line)))

    def mean(self, begin):
        self.process.kill()
        inside = [watts for at, watts in self.readings if at >= begin]
        return sum(inside) / max(1, len(inside))


def timed(step, first, seconds, device, world):
    """Steps a second, and watts."""
    cuda = device.type == "cuda"
    for _ in range(10):
        last = step()
    assert last.item() < first, (first, last.item())
    power = Power() if cuda and world == 1 else None
    marks, begin, going = [], time.time(), torch.ones(1, device=device)
    while going.item() or len(marks) < 4:
        for _ in range(5):
            step()
        marks.append(time.time())
        going.fill_(time.time() - begin < seconds)
        if world > 1:  # all ranks end with the same step
            dist.broadcast(going, 0)
        elif cuda:
            torch.cuda.synchronize()
    half = (len(marks) - 1) // 2
    spans = [after - before for before, after in zip(marks[half:], marks[half + 1 :])]
    return 5 / statistics.median(spans), power.mean(marks[half]) if power else 0


def run(name, o, device, rank, world):
    length, batch = SHAPES[name][4], o.micro_batch_size or SHAPES[name][3]
    cuda = device.type == "cuda"
    torch.manual_seed(1)
    compiled, model, after = build(name, o, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=cuda)
    torch.manual_seed(2 + rank)
    tokens = torch.randint(
        LLAMAS[name][2] if name in LLAMAS else 50257, (batch, length + 1), device=device
    )
    mixed = o.autocast or o.shard == "ddp"
    attention = (
        [SDPBackend.CUDNN_ATTENTION] if cuda else [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]
    )

    def step():
        with (
            torch.autocast(device.type, dtype=torch.bfloat16, enabled=mixed),
            sdpa_kernel(attention),
        ):
            loss = compiled(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        after()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    first = step().item()
    if o.warm:
        return
    with alone(o.lock):
        rate, watts = timed(step, first, o.seconds, device, world)
    rate *= batch * length * world
    how = {"": "autocast" if o.autocast else "bf16 weights", "ddp": "DDP", "fsdp": "FSDP2"}[o.shard]
    how += f", torchao {o.float8}" if o.float8 else ""
    memory = torch.cuda.max_memory_allocated() / 1e9 if cuda else 0
    if rank == 0:
        print(
            f"{name} {batch}x{length} on {world}, PyTorch {torch.__version__} "
            f"{how}{', recompute' if o.recompute else ''}: "
            f"{rate:,.0f} tokens/s, {memory:.1f} GB, {watts:.0f} W, "
            f"{watts / rate * 1e3:.2f} mJ/token",
            flush=True,
        )
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
    parser.add_argument("--layers", type=int)
    parser.add_argument("--float8", default="")
    parser.add_argument("--lock", default="")
    parser.add_argument("--warm", action="store_true")
    o = parser.parse_args()
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    device = (
        torch.device(o.device, int(os.environ.get("LOCAL_RANK", 0)))
        if o.device == "cuda"
        else torch.device(o.device)
    )
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
