#!/usr/bin/env python3
"""Trains PyTorch's GPT-2 from the same weights on the samples that our trainer used, and compares
the losses.

torch_curve.py INITIAL_HF_FOLDER DATASET_PREFIX CACHE_FOLDER METRICS_JSONL
    GLOBAL_BATCH SEQ_LENGTH LR

Reads the order of samples from Megatron's index files in CACHE_FOLDER. Main weights are fp32 under
autocast to bf16; AdamW (0.9, 0.95), weight decay 0.1 on matrices, clip 1.0. Prints a table every 20
steps and the differences.
"""

import json
import sys

import numpy as np
import torch
from transformers import GPT2LMHeadModel

from samples import Samples

folder, prefix, cache, metrics, batch, length, lr = sys.argv[1:8]
batch, length, lr = int(batch), int(length), float(lr)
ours = [json.loads(line) for line in open(metrics, encoding="utf-8")]
ours = [row for row in ours if "lm_loss" in row and "validation" not in row]
losses = [row["lm_loss"] for row in ours]

samples = Samples(prefix, cache)
torch.manual_seed(0)
model = (
    GPT2LMHeadModel.from_pretrained(
        folder,
        attn_implementation="sdpa",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        torch_dtype=torch.float32,
    )
    .cuda()
    .train()
)
decayed = [p for p in model.parameters() if p.dim() > 1]
others = [p for p in model.parameters() if p.dim() == 1]
optimizer = torch.optim.AdamW(
    [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
    lr=lr,
    betas=(0.9, 0.95),
    eps=1e-8,
    fused=True,
)
differences = []
for step in range(len(losses)):
    data = torch.from_numpy(samples.batch(step, batch)).cuda()
    assert data.shape == (batch, length + 1), data.shape
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = model(data[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), data[:, 1:].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    differences.append(losses[step] - loss.item())
    if step % 20 == 0 or step == len(losses) - 1:
        print(
            f"step {step + 1:4d}  trainer {losses[step]:.4f}  PyTorch {loss.item():.4f}  "
            f"difference {differences[-1]:+.4f}",
            flush=True,
        )
d = np.array(differences)
print(
    f"{len(d)} steps: mean difference {d.mean():+.5f}, mean of |difference| "
    f"{np.abs(d).mean():.5f}, largest {np.abs(d).max():.5f}"
)
