#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch's loss beside ours: GPT-2 from the trainer's first weights on the trainer's samples.

    torch_loss.py HF_FOLDER DATASET_PREFIX CACHE_FOLDER METRICS_OUT MODEL STEPS LR MIN_LR
                  [--float8 tensorwise|rowwise|rowwise_with_gw_hp] [--device cpu] [--batch B]

HF_FOLDER: the weights before the first step, exported in fp32. CACHE_FOLDER: Megatron's index
files, from which the samples are read in the trainer's order. fp32 main weights under autocast to
bf16, torch.compile, fused AdamW (0.9, 0.95), weight decay 0.1 of matrices, clip 1.0, the learning
rate of bench/fp8/loss.sh. With --float8 the blocks' linear layers are torchao's. Writes a line of
metrics every 5 steps: the mean loss of these steps, and the last gradient norm.
"""

import argparse
import json
import math
import os
import sys

import torch
from safetensors.torch import load_file

here = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(here, "..", "step"), os.path.join(here, "..", "curve")]
import torch_step  # noqa: E402
from samples import Samples  # noqa: E402

INTERVAL = 5
PLAIN = {
    "norm1": "ln_1",
    "norm2": "ln_2",
    "qkv": "attn.c_attn",
    "proj": "attn.c_proj",
    "fc1": "mlp.c_fc",
    "fc2": "mlp.c_proj",
}


def load(model, folder):
    """transformers' GPT-2 into torch_step's: its matrices are transposed, it has fewer rows."""
    source = load_file(os.path.join(folder, "model.safetensors"))
    source = {name.removeprefix("transformer."): t for name, t in source.items()}
    words = source["wte.weight"]
    model.tokens.weight.data[: words.shape[0]] = words.to(model.tokens.weight)
    copies = {
        "positions.weight": source["wpe.weight"],
        "norm.weight": source["ln_f.weight"],
        "norm.bias": source["ln_f.bias"],
    }
    for i in range(len(model.blocks)):
        for ours, theirs in PLAIN.items():
            for kind in ("weight", "bias"):
                t = source[f"h.{i}.{theirs}.{kind}"]
                copies[f"blocks.{i}.{ours}.{kind}"] = t.T if t.dim() == 2 else t
    parameters = dict(model.named_parameters())
    missing = set(parameters) - set(copies) - {"tokens.weight"}
    assert not missing, missing
    for name, value in copies.items():
        parameters[name].data.copy_(value)


def learning_rate(done, steps, most, least):
    """Of the step after `done` steps, as Megatron's: 0 at first, linear over a tenth, a cosine."""
    warm = steps // 10
    if done <= warm:
        return most * done / warm
    return least + (most - least) * 0.5 * (1 + math.cos(math.pi * (done - warm) / (steps - warm)))


def main():
    parser = argparse.ArgumentParser()
    for name in ("folder", "prefix", "cache", "metrics", "model"):
        parser.add_argument(name)
    parser.add_argument("steps", type=int)
    parser.add_argument("lr", type=float)
    parser.add_argument("min_lr", type=float)
    parser.add_argument("--float8", default="")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", type=int)
    o = parser.parse_args()
    layers, hidden, heads, batch, length = torch_step.SHAPES[o.model]
    batch = o.batch or batch
    samples = Samples(o.prefix, o.cache)
    torch.manual_seed(0)
    model = torch_step.Gpt(layers, hidden, heads, length)
    load(model, o.folder)
    model.to(o.device)
    if o.float8:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training

        convert_to_float8_training(
            model.blocks, config=Float8LinearConfig.from_recipe_name(o.float8)
        )
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0},
    ]
    cuda = o.device == "cuda"
    optimizer = torch.optim.AdamW(groups, lr=o.lr, betas=(0.9, 0.95), eps=1e-8, fused=cuda)
    compiled = torch.compile(model) if cuda else model
    losses = []
    with open(o.metrics, "w") as out:
        for step in range(1, o.steps + 1):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step - 1, o.steps, o.lr, o.min_lr)
            data = torch.from_numpy(samples.batch(step - 1, batch)).to(o.device)
            with torch.autocast(o.device, dtype=torch.bfloat16):
                loss = compiled(data[:, :-1], data[:, 1:])
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.detach())
            if step % INTERVAL == 0:
                row = {
                    "iteration": step,
                    "lm_loss": torch.stack(losses).mean().item(),
                    "grad_norm": norm.item(),
                }
                print(json.dumps(row), file=out, flush=True)
                losses.clear()


if __name__ == "__main__":
    main()
