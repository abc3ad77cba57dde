"""Converts one checkpoint to transformers in two ways: with ours, and with --to megatron followed
by transformers' own unmodified convert_megatron_gpt2_checkpoint.py (in the wheels up to 4.46.3).
The tensors must be equal.

Run with that wheel:
  python tests/reference/check_to_megatron.py MEGATRON_TO_HF CHECKPOINT WORK [FLAGS...]
"""

# SPDX-License-Identifier: MIT
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import torch
import transformers
from safetensors.torch import load_file

tool, checkpoint, work, *flags = sys.argv[1:]
work = pathlib.Path(work).absolute()
shutil.rmtree(work, ignore_errors=True)
subprocess.run([tool, "--input", checkpoint, "--output", work / "ours", *flags], check=True)
script = importlib.util.find_spec(
    "transformers.models.megatron_gpt2.convert_megatron_gpt2_checkpoint"
).origin
failed = 0
for object_kind in ("namespace", "ordereddict"):
    folder = work / object_kind
    subprocess.run(
        [
            tool,
            "--input",
            checkpoint,
            "--output",
            folder,
            "--to",
            "megatron",
            "--args-object",
            object_kind,
            *flags,
        ],
        check=True,
    )
    file = folder / "release/mp_rank_00/model_optim_rng.pt"
    if object_kind == "ordereddict":
        torch.load(file, weights_only=True)
    torch.load(file, weights_only=False, mmap=True)
    subprocess.run(
        [sys.executable, script, str(file)],
        check=True,
        env={
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            # this script calls torch.load with its default, which since torch 2.6 takes no
            # Namespace
            **({"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"} if object_kind == "namespace" else {}),
        },
    )
    theirs = torch.load(file.parent / "pytorch_model.bin", weights_only=True)
    ours = load_file(work / "ours/model.safetensors")
    rows = ours["transformer.wte.weight"].shape[0]
    for name, tensor in ours.items():
        other = theirs[name][:rows] if "wte" in name or "lm_head" in name else theirs[name]
        if other.dtype != tensor.dtype or not torch.equal(other, tensor):
            failed += 1
            print("FAIL", object_kind, name)
    left = [
        k
        for k in theirs
        if k not in ours
        and not k.endswith((".attn.bias", ".attn.masked_bias"))
        and k != "lm_head.weight"
    ]
    failed += bool(left)
    config = transformers.GPT2Config.from_pretrained(file.parent)
    mine = transformers.GPT2Config.from_pretrained(work / "ours")
    for key in ("n_embd", "n_layer", "n_head", "n_inner", "n_positions", "layer_norm_epsilon"):
        if getattr(config, key) != getattr(mine, key):
            failed += 1
            print("FAIL", object_kind, key, getattr(config, key), getattr(mine, key))
    print(
        "ok  " if not failed else "FAIL",
        transformers.__version__,
        object_kind,
        len(ours),
        "tensors equal",
        left,
    )
sys.exit(failed > 0)
