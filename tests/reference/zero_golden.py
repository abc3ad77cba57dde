#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Golden of convert: the model of tests/golden/convert/gpt2/v3.pt as DeepSpeed itself saves it with
ZeRO stage 3 on three CPU ranks.

    python3 zero_golden.py tests/golden/convert/gpt2

Writes FOLDER/zero3. Made with deepspeed 0.18, torch 2.15. Starts its own ranks. No parameter's size
is a multiple of three, so the last slices are padded.
"""

import enum
import os
import subprocess
import sys

# v3.pt's arguments hold one
AttnBackend = enum.Enum("AttnBackend", "flash fused unfused local auto")


def flatten(value, prefix=""):
    for key, item in value.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if hasattr(item, "items"):
            yield from flatten(item, name)
        else:
            yield name, item


def save(folder):
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed
    import deepspeed.comm.torch
    import torch

    deepspeed.comm.torch.build_shm_op = lambda: None  # gloo alone; nothing is compiled
    source = torch.load(os.path.join(folder, "v3.pt"), weights_only=False)
    root = torch.nn.Module()
    for name, tensor in flatten(source["model"]):
        module = root
        *path, last = name.split(".")
        for part in path:
            if part not in module._modules:
                module.add_module(part, torch.nn.Module())
            module = module._modules[part]
        module.register_parameter(last, torch.nn.Parameter(tensor.float()))
    config = {
        "train_batch_size": 3,
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": 3},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    }
    engine, *_ = deepspeed.initialize(model=root, config=config)
    engine.save_checkpoint(
        os.path.join(folder, "zero3"),
        tag="global_step9",
        client_state={"args": source["args"], "iteration": 9, "checkpoint_version": 3.0},
    )


if __name__ == "__main__":
    if "RANK" in os.environ:
        save(sys.argv[1])
    else:
        subprocess.run(
            [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--nproc-per-node",
                "3",
                __file__,
                sys.argv[1],
            ],
            check=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        made = os.path.join(sys.argv[1], "zero3")
        for folder, _, files in os.walk(made):
            for name in files:  # programs of DeepSpeed, and copies that no reader opens
                if name.endswith(".py") or (
                    "model_states" in name and "zero_pp_rank_0" not in name
                ):
                    os.remove(os.path.join(folder, name))
