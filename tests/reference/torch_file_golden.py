"""Writes tests/golden/convert/{zip,legacy,protocol4,deflated}.pt and torch_file.json.

The JSON holds, for each tensor: dtype, shape, CRC-32 of its row-major little-endian bytes.
Made with torch 2.15.0. Run: python tests/reference/torch_file_golden.py tests/golden/convert
"""

# SPDX-License-Identifier: MIT
import argparse
import enum
import json
import pathlib
import sys
import types
import zipfile
import zlib
from collections import OrderedDict

import numpy as np
import torch


class Attention(enum.Enum):
    flash = 1


def tensor_bytes(t):
    t = t.detach().contiguous()
    return t.reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""


torch.manual_seed(7)
base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
tensors = OrderedDict(
    f32=torch.randn(3, 5),
    f64=torch.randn(2, 2, dtype=torch.float64),
    f16=torch.randn(7).half(),
    bf16=torch.randn(2, 3).bfloat16(),
    i64=torch.tensor([-1, 2**62]),
    i32=torch.tensor([[1], [-2]], dtype=torch.int32),
    i16=torch.tensor([3, -3], dtype=torch.int16),
    i8=torch.tensor([4, -4], dtype=torch.int8),
    u8=torch.tensor([250], dtype=torch.uint8),
    bool=torch.tensor([True, False, True]),
    c64=torch.tensor([1 + 2j]),
    c128=torch.tensor([1 - 2j], dtype=torch.complex128),
    scalar=torch.tensor(2.5),
    empty=torch.zeros(0, 4),
    transposed=base.t(),
    columns=base[:, 1:5:2],
    rows=base[1:3],
    cube=torch.arange(24).reshape(2, 3, 4).permute(2, 0, 1),
    parameter=torch.nn.Parameter(torch.ones(2, 2)),
)
new = OrderedDict(
    u16=torch.tensor([65535], dtype=torch.uint16),
    u64=torch.tensor([2**63 + 1], dtype=torch.uint64),
    f8=torch.tensor([0.5, -1.0]).to(torch.float8_e4m3fn),
)
args = argparse.Namespace(
    hidden_size=16,
    lr=1.5e-4,
    bf16=True,
    fp16=False,
    none=None,
    name="caf\u00e9",
    big=2**80,
    negative=-(2**40),
    path=pathlib.PurePosixPath("/a") / "b",
    params_dtype=torch.bfloat16,
    betas=(0.9, 0.95),
    data_path=["x", "y"],
    attention=Attention.flash,
    numpy_int=np.int64(50304),
    numpy_float=np.float64(0.25),
    raw=b"\x00\xff",
    device=torch.device("cuda", 3),
    size=torch.Size([2, 3]),
    inner=types.SimpleNamespace(a=1),
    function=torch.nn.functional.gelu,
    array=np.arange(3),
)
out = pathlib.Path(sys.argv[1])


def tree(extra):
    return {
        "args": args,
        "iteration": 12,
        "checkpoint_version": 3.0,
        "tensors": OrderedDict(tensors, **extra),
        "list": [1, [2, []], (3,)],
    }


torch.save(tree(new), out / "zip.pt")
torch.save(tree({}), out / "legacy.pt", _use_new_zipfile_serialization=False)
torch.save(tree(new), out / "protocol4.pt", pickle_protocol=4)
with zipfile.ZipFile(out / "zip.pt") as old, zipfile.ZipFile(out / "deflated.pt", "w") as packed:
    for member in old.infolist():
        how = zipfile.ZIP_DEFLATED if member.filename.endswith("data.pkl") else zipfile.ZIP_STORED
        packed.writestr(member.filename, old.read(member), how)
assert torch.load(out / "deflated.pt", weights_only=False)["iteration"] == 12
names = {
    torch.float32: "F32",
    torch.float64: "F64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.complex64: "C64",
    torch.complex128: "C128",
    torch.uint16: "U16",
    torch.uint64: "U64",
    torch.float8_e4m3fn: "F8_E4M3",
}
table = {
    k: [names[t.dtype], list(t.shape), zlib.crc32(tensor_bytes(t))]
    for k, t in {**tensors, **new}.items()
}
(out / "torch_file.json").write_text(
    json.dumps({"torch": torch.__version__, "tensors": table}, indent=1) + "\n"
)
