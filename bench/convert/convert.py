#!/usr/bin/env python3
"""Times conversions against cp and sync of the same bytes, and against transformers' own load and
save: medians, ratios, memory.

convert.py --model FOLDER --programs build/release/bin --work EMPTY_FOLDER
           [--rounds 5] [--dtype keep] [--skip-transformers]

The folder is made by make_model.py, or any that hf-to-megatron reads. The commands run alternately.
Each timing ends when the bytes are on disk (cp and save_pretrained are followed by sync; the
programs sync what they write), and files are read from the page cache. Before anything is timed, a
round trip must give the original tensors, bit for bit. Anonymous memory is the largest RssAnon,
sampled every 10 ms.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

LOAD_AND_SAVE = """
import sys, torch
from transformers import AutoModelForCausalLM
torch.set_num_threads(int(sys.argv[3]))
AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype="auto").save_pretrained(sys.argv[2])
"""


def sync(folder):
    subprocess.run(["sync", "-d", *(str(p) for p in folder.rglob("*") if p.is_file())], check=True)


def anonymous_bytes(pid):
    try:
        with open(f"/proc/{pid}/status") as status:
            return next(
                (int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon:")), 0
            )
    except OSError:
        return 0


def timed(command, output, then_sync):
    """(seconds, peak anonymous bytes, processor seconds) of one run into a fresh `output`."""
    shutil.rmtree(output, ignore_errors=True)
    os.sync()
    before, start = os.times(), time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    peak = 0
    while process.poll() is None:
        peak = max(peak, anonymous_bytes(process.pid))
        time.sleep(0.01)
    if process.returncode != 0:
        sys.exit(f"{command}: {process.stderr.read().decode()}")
    if then_sync:
        sync(output)
    wall, after = time.perf_counter() - start, os.times()
    return (
        wall,
        peak,
        after.children_user + after.children_system - before.children_user - before.children_system,
    )


def same_tensors(a, b):
    from safetensors import safe_open

    with (
        safe_open(a / "model.safetensors", "pt") as left,
        safe_open(b / "model.safetensors", "pt") as right,
    ):
        names = set(left.keys()) - {"lm_head.weight"}
        assert names == set(right.keys()) - {"lm_head.weight"}
        return all(left.get_tensor(n).equal(right.get_tensor(n)) for n in names)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", default="keep")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--skip-transformers", action="store_true")
    arguments = parser.parse_args()
    model, work = arguments.model, arguments.work
    there, pt, back, copy, other = (
        work / n for n in ("trainer", "megatron", "hf", "copy", "transformers")
    )
    to_trainer = [
        arguments.programs / "hf-to-megatron",
        "-q",
        "--input",
        model,
        "--dtype",
        arguments.dtype,
        "--output",
    ]
    from_trainer = [
        arguments.programs / "megatron-to-hf",
        "-q",
        "--input",
        work / "source",
        "--output",
        back,
    ]
    subprocess.run([*to_trainer, work / "source"], check=True)
    subprocess.run(from_trainer, check=True)
    if arguments.dtype == "keep":
        assert same_tensors(model, back), "the way there and back changed a tensor"
    sides = {
        "cp + sync of the folder": (["cp", "-r", model, copy], copy, True),
        "hf-to-megatron": ([*to_trainer, there], there, False),
        "hf-to-megatron --to megatron": ([*to_trainer, pt, "--to", "megatron"], pt, False),
        "megatron-to-hf": (from_trainer, back, False),
    }
    if not arguments.skip_transformers:
        sides["transformers load + save"] = (
            [sys.executable, "-c", LOAD_AND_SAVE, model, other, str(arguments.threads)],
            other,
            True,
        )
    measured = {name: [] for name in sides}
    for _ in range(arguments.rounds + 1):
        for name, side in sides.items():
            measured[name].append(timed(*side))
    size = sum(p.stat().st_size for p in model.rglob("*") if p.is_file())
    print(
        f"{model}: {size / 1e9:.2f} GB, --dtype {arguments.dtype}, "
        f"{arguments.rounds} rounds after one, "
        f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}"
    )
    base = [m[0] for m in measured["cp + sync of the folder"][1:]]
    for name, runs in measured.items():
        walls = [m[0] for m in runs[1:]]
        print(
            f"  {name:30} {statistics.median(walls):7.2f} s "
            f"({min(walls):.2f} to {max(walls):.2f}), "
            f"over cp {statistics.median(w / b for w, b in zip(walls, base)):5.2f}, "
            f"processor {statistics.median(m[2] for m in runs[1:]):6.2f} s, "
            f"anonymous memory {max(m[1] for m in runs) / 2**20:7.0f} MiB"
        )
    for folder in (there, pt, back, copy, other, work / "source"):
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
