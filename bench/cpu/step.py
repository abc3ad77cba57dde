#!/usr/bin/env python3
"""Times whole training steps of the trainer and of PyTorch on the CPU, alternately;
bench/cpu/step.sh prepares and calls it.

Same weights, same samples, fp32, AdamW, clip 1.0, no dropout. PyTorch: the model of
bench/step/torch_step.py, eager and compiled, scaled_dot_product_attention, fused AdamW. The first
losses of all must agree (so gradients and updates do) before anything is timed. Each side then runs
a few steps in every round, while the others are stopped. Printed are wall and processor time of one
step, medians over the rounds, and the ratio to ours as the median of the rounds' ratios, which
other load on the machine affects least.
"""

import argparse
import os
import re
import select
import signal
import statistics
import subprocess
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "step"), os.path.join(HERE, "..", "curve")]
from samples import Samples  # noqa: E402
from torch_step import Gpt  # noqa: E402

# Layers, hidden, heads, batch, sequence, vocabulary.
SHAPES = {"demo": (4, 128, 4, 8, 128, 4096), "124M": (12, 768, 12, 1, 512, 50304)}
CHECKED, RATE, DECAY = 8, 3e-4, 0.1


class Trainer:
    """The trainer as a process that is stopped except while its steps are counted."""

    def __init__(self, name, program, flags, threads, steps):
        self.name = name
        line = [
            program,
            *flags,
            "--lr",
            str(RATE),
            "--min-lr",
            str(RATE),
            "--weight-decay",
            str(DECAY),
            "--train-iters",
            str(steps),
            "--cpu-threads",
            str(threads),
        ]
        self.process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.stop()
        self.pipe, self.rest, self.losses = self.process.stdout.fileno(), "", []

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def take(self, text):
        """Losses of the complete lines in `text`, which continues the rest of the previous text."""
        *lines, self.rest = (self.rest + text).split("\n")
        self.losses += [
            float(found.group(1))
            for found in (re.search(r"lm loss: (\S+)", line) for line in lines)
            if found
        ]

    def step(self):
        before = len(self.losses)
        while len(self.losses) == before:
            text = os.read(self.pipe, 1 << 16).decode()
            if not text:
                raise SystemExit(f"{self.name}: ended early, status {self.process.wait()}")
            self.take(text)

    def first_steps(self, count):
        self.process.send_signal(signal.SIGCONT)
        while len(self.losses) < count:
            self.step()
        self.stop()

    def processor_seconds(self):
        total, folder = 0, f"/proc/{self.process.pid}/task"
        for task in os.listdir(folder):
            with open(f"{folder}/{task}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0])
        return total / 1e9

    def round(self, count):
        """(wall, processor) seconds of one step. Steps whose lines were still in the pipe do not
        count, nor the one that the stop interrupted."""
        time.sleep(0.05)  # the stop has arrived
        while select.select([self.pipe], [], [], 0)[0]:
            self.take(os.read(self.pipe, 1 << 16).decode())
        self.process.send_signal(signal.SIGCONT)
        self.step()
        wall, processor, first = time.perf_counter(), self.processor_seconds(), len(self.losses)
        while len(self.losses) < first + count:
            self.step()
        done = len(self.losses) - first
        result = time.perf_counter() - wall, self.processor_seconds() - processor
        self.stop()
        return [seconds / done for seconds in result]

    def end(self):
        self.process.kill()
        self.process.wait()


class Torch:
    """PyTorch's side, in this process."""

    def __init__(self, name, shape, weights, samples, compiled):
        layers, hidden, heads, self.batch, length, vocabulary = shape
        self.name, self.samples = name, samples
        self.model = Gpt(layers, hidden, heads, length, vocabulary)
        self.model.load_state_dict(renamed(weights, layers))
        matrices = [p for p in self.model.parameters() if p.dim() > 1]
        vectors = [p for p in self.model.parameters() if p.dim() == 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}],
            lr=RATE,
            betas=(0.9, 0.95),
            eps=1e-8,
            fused=True,
        )
        self.forward = torch.compile(self.model) if compiled else self.model
        self.losses = []

    def step(self):
        data = torch.from_numpy(self.samples.batch(len(self.losses), self.batch))
        loss = self.forward(data[:, :-1], data[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.losses.append(loss.item())

    def first_steps(self, count):
        for _ in range(count):
            self.step()

    def round(self, count):
        self.step()
        wall, processor = time.perf_counter(), time.process_time()
        for _ in range(count):
            self.step()
        return [(time.perf_counter() - wall) / count, (time.process_time() - processor) / count]

    def end(self):
        pass


def renamed(weights, layers):
    """transformers' GPT-2 names and orientations to those of torch_step.Gpt."""
    out = {
        "tokens.weight": weights["transformer.wte.weight"],
        "positions.weight": weights["transformer.wpe.weight"],
        "norm.weight": weights["transformer.ln_f.weight"],
        "norm.bias": weights["transformer.ln_f.bias"],
    }
    names = {
        "norm1": "ln_1",
        "norm2": "ln_2",
        "qkv": "attn.c_attn",
        "proj": "attn.c_proj",
        "fc1": "mlp.c_fc",
        "fc2": "mlp.c_proj",
    }
    for layer in range(layers):
        for ours, theirs in names.items():
            for kind in ("weight", "bias"):
                value = weights[f"transformer.h.{layer}.{theirs}.{kind}"]
                out[f"blocks.{layer}.{ours}.{kind}"] = (
                    value.T.contiguous() if value.dim() == 2 else value
                )
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=SHAPES, required=True)
    for name in ("weights", "data", "cache"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--trainer", action="append", required=True)
    for name in ("rounds", "steps", "threads"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("flags", nargs="*")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    total = 4 * (CHECKED + arguments.rounds * (arguments.steps + 1))  # more than are waited for
    weights, samples, shape = (
        load_file(arguments.weights),
        Samples(arguments.data, arguments.cache),
        SHAPES[arguments.model],
    )
    sides = [
        Trainer(
            "trainer" if i == 0 else f"trainer of {program}",
            program,
            arguments.flags,
            arguments.threads,
            total,
        )
        for i, program in enumerate(arguments.trainer)
    ]
    sides += [
        Torch("torch eager", shape, weights, samples, False),
        Torch("torch.compile", shape, weights, samples, True),
    ]
    try:
        compare(sides, arguments, shape)
    finally:
        for side in sides:
            side.end()


def compare(sides, arguments, shape):
    for side in sides:
        side.first_steps(CHECKED)
    apart = max(
        abs(a / b - 1) for side in sides[1:] for a, b in zip(side.losses[:CHECKED], sides[0].losses)
    )
    assert apart < 1e-4, [side.losses for side in sides]
    times = {side.name: [] for side in sides}
    for _ in range(arguments.rounds):
        for side in sides:
            times[side.name].append(side.round(arguments.steps))
    layers, hidden, heads, batch, length, vocabulary = shape
    print(
        f"{arguments.model}, {batch} x {length} tokens, {arguments.threads} thread(s), fp32, "
        f"torch {torch.__version__}; first {CHECKED} losses within {apart:.1e}; "
        f"{arguments.rounds} rounds of {arguments.steps} steps, load {os.getloadavg()[0]:.1f}"
    )
    ours = times[sides[0].name]
    for name, measured in times.items():
        wall, processor = (statistics.median(column) for column in zip(*measured))
        ratios = [statistics.median(m[i] / o[i] for m, o in zip(measured, ours)) for i in (0, 1)]
        print(
            f"  {name:15} {wall * 1e3:9.2f} ms wall {processor * 1e3:9.2f} ms processor   "
            f"{batch * length / wall:9,.0f} tokens/s   over ours {ratios[0]:.2f} {ratios[1]:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
