#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares shuffle-index's files with those of megatron-core's own classes, for configurations that
no golden holds.

    python judge_indices.py BIN_FOLDER [SEED [CASES]]
Configurations are drawn as in index_golden.py, with another seed; each is built by the real
BlendedMegatronDatasetBuilder and by the program, and every file of both must have the same name and
bytes. Where megatron-core raises or does not terminate, the program must either refuse or write
files; those cases are counted.
"""

import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile

import index_golden

BIN = os.path.abspath(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 1
CASES = int(sys.argv[3]) if len(sys.argv) > 3 else 100


def flags_of(case):
    flags = [
        "--seq-length",
        case["seq_length"],
        "--seed",
        case["seed"],
        "--mid-level-dataset-surplus",
        repr(case["surplus"]),
        "--samples",
        ",".join("all" if n is None else str(n) for n in case["num_samples"]),
    ]
    if case["data_path"] is not None:
        flags += ["--data-path", *case["data_path"], "--split=" + case["split"]]
    else:
        for name, words in zip(("train", "valid", "test"), case["split_data_path"]):
            if words:
                flags += [f"--{name}-data-path", *words]
    flags += [] if case["drop_last"] else ["--keep-last-partial-validation-sequence"]
    flags += [] if case["extra_token"] else ["--no-extra-token"]
    flags += ["--data-cache-path", case["cache_path"]] if case["cache_path"] else []
    tokenizer = case["null_tokenizer"]
    flags += ["--tokenizer-type", "NullTokenizer", "--vocab-size", tokenizer["vocab_size"]]
    for name in ("eod_id", "pad_id"):
        if name in tokenizer:
            flags += ["--null-tokenizer-" + name.replace("_", "-"), tokenizer[name]]
    return [str(flag) for flag in flags]


def run_program(case):
    here, folder = os.getcwd(), tempfile.mkdtemp()
    os.chdir(folder)
    try:
        for prefix, recipe in case["datasets"].items():
            os.makedirs(os.path.dirname(prefix) or ".", exist_ok=True)
            index_golden.write_dataset(prefix, recipe)
        ended = subprocess.run(
            [os.path.join(BIN, "shuffle-index"), "-q", *flags_of(case)],
            capture_output=True,
            text=True,
            timeout=120,
        )
        if ended.returncode not in (0, 1, 2):
            sys.exit(f"status {ended.returncode}: {flags_of(case)}: {ended.stderr}")
        files = {}
        for root, _, names in os.walk("."):
            for name in names:
                path = os.path.relpath(os.path.join(root, name))
                files[path] = hashlib.md5(open(path, "rb").read()).hexdigest()
        return ended.returncode, files, ended.stderr.strip()
    finally:
        os.chdir(here)
        shutil.rmtree(folder)


def main():
    chance = random.Random(SEED)
    counts = {"equal": 0, "both refuse": 0, "megatron-core alone fails": 0}
    for number in range(CASES):
        case = index_golden.random_case(chance)
        want = index_golden.run_case(case)
        status, got, error = run_program(case)
        if want is None:
            counts["both refuse" if status else "megatron-core alone fails"] += 1
        elif status:
            sys.exit(
                f"case {number}: megatron-core wrote {len(want)} files, the program said: {error}\n"
                f"{flags_of(case)}\n{case['datasets']}"
            )
        elif want != got:
            differ = sorted(
                path for path in want.keys() | got.keys() if want.get(path) != got.get(path)
            )
            sys.exit(f"case {number}: differ: {differ}\n{flags_of(case)}\n{case['datasets']}")
        else:
            counts["equal"] += 1
    print(index_golden.VERSIONS, "seed", SEED, counts)


main()
