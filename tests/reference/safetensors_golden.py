"""Writes tests/golden/trainer/reference.safetensors with the reference library.

Made with safetensors 0.8.0, torch 2.15.0.
Run: python tests/reference/safetensors_golden.py tests/golden/trainer
"""

# SPDX-License-Identifier: MIT
import sys

import torch
from safetensors.torch import save_file

save_file(
    {
        "f32": torch.arange(6, dtype=torch.float32).reshape(2, 3),
        "bf16": torch.tensor([1.0, -2.0, 0.5], dtype=torch.bfloat16),
        "f16": torch.tensor([[1.0], [65504.0]], dtype=torch.float16),
        "i64": torch.tensor([-1, 2**62]),
        "bool": torch.tensor([True, False, True]),
        "scalar": torch.tensor(3.25),
        "empty": torch.zeros(0, 5),
    },
    sys.argv[1] + "/reference.safetensors",
    metadata={"format": "pt"},
)
