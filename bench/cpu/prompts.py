#!/usr/bin/env python3
"""First token and tokens per second after prompts of several lengths, on the CPU: generate against
transformers, same folder, same prompt, alternately, whole processes.

prompts.py --folder HF_FOLDER --generate PROGRAM [--threads 2] [--lengths 16 128 512]
           [--tokens 16] [--rounds 5] [--dtype bfloat16] [--word " the"]

The time to the first token is from the start of the process, imports and loading included, to the
first new id; the prompt is a word of one token, repeated. tokens/s are those of the --tokens after
it. generate's are the difference between two processes, transformers' are taken inside one, so that
only its forward passes count. Before anything is timed, both must choose the same ids at every
length, transformers in fp32. Files are read once first. The figures are medians, and the ratios
medians of those of neighbouring runs.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

PEER = """
import json, sys, time
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, dtype, threads, prompt, count, start = sys.argv[1:]
torch.set_num_threads(int(threads))
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
inputs = tokenizer(prompt, return_tensors="pt")
ids, first, processor = [], 0, 0
class Times:
    def put(self, new):
        global first, processor
        if new.numel() > 1 or new.dim() > 1: return  # the prompt
        ids.append(int(new))
        if len(ids) == 1: first, processor = time.time(), time.process_time()
    def end(self): pass
with torch.inference_mode():
    model.generate(**inputs, max_new_tokens=int(count), min_new_tokens=int(count),
                   do_sample=False, pad_token_id=0, streamer=Times())
print(json.dumps({"prompt": inputs["input_ids"].shape[1], "text": tokenizer.decode(ids),
                  "first": first - float(start), "rest": time.time() - first,
                  "processor": processor, "rest_processor": time.process_time() - processor}))
"""


def ours(a, prompt, count):
    """(text, wall seconds, processor seconds) of one process."""
    before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    text = subprocess.run(
        [
            a.generate,
            "--load",
            a.folder,
            "--prompt",
            prompt,
            "--no-prompt",
            "--max-new-tokens",
            str(count),
            "--greedy",
            "--device",
            "cpu",
            "--cpu-threads",
            str(a.threads),
            "--ignore-eod",
        ],
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    wall, after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = sum(getattr(after, k) - getattr(before, k) for k in ("ru_utime", "ru_stime"))
    return text.decode("utf-8", "replace").removesuffix("\n"), wall, processor


def peer(a, prompt, count, dtype):
    command = [sys.executable, "-c", PEER, a.folder, dtype, str(a.threads), prompt, str(count)]
    out = subprocess.run(
        [*command, repr(time.time())], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ).stdout
    return json.loads(out.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True)
    parser.add_argument("--generate", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lengths", type=int, nargs="+", default=[16, 128, 512])
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--word", default=" the")
    parser.add_argument("--skip-check", action="store_true")
    a = parser.parse_args()
    for file in pathlib.Path(a.folder).iterdir():
        file.read_bytes()
    if not a.skip_check:
        for length in a.lengths:
            same = peer(a, a.word * length, a.tokens, "float32")
            assert same["text"] == ours(a, a.word * length, a.tokens)[0], (
                f"the two sides choose other tokens after {length}"
            )
    for length in a.lengths:
        prompt, runs = a.word * length, []
        for _ in range(a.rounds):
            one, more, other = (
                ours(a, prompt, 1),
                ours(a, prompt, 1 + a.tokens),
                peer(a, prompt, 1 + a.tokens, a.dtype),
            )
            assert other["prompt"] == length, (
                f"--word is not one token: {other['prompt']} for {length}"
            )
            runs.append(
                (
                    one[1],
                    other["first"],
                    one[2],
                    other["processor"],
                    (more[1] - one[1]) / a.tokens,
                    other["rest"] / a.tokens,
                    (more[2] - one[2]) / a.tokens,
                    other["rest_processor"] / a.tokens,
                )
            )
        column = list(zip(*runs))
        middle = [statistics.median(c) for c in column]
        ratio = [
            statistics.median(p / o for o, p in zip(column[i], column[i + 1])) for i in (0, 2, 4, 6)
        ]
        print(
            f"{length} tokens, {a.threads} threads, {a.rounds} rounds, "
            f"load {os.getloadavg()[0]:.1f}: "
            f"first token {middle[0]:.2f} s against {middle[1]:.2f} s "
            f"({ratio[0]:.2f} times as early), "
            f"processor {middle[2]:.2f} and {middle[3]:.2f} s ({ratio[1]:.2f}); "
            f"{1 / middle[4]:.2f} against {1 / middle[5]:.2f} tokens/s ({ratio[2]:.2f} times), "
            f"processor {middle[6]:.3f} and {middle[7]:.3f} s a token ({ratio[3]:.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
