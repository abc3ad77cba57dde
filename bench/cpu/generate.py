#!/usr/bin/env python3
"""Tokens per second of greedy generation on the CPU: generate against transformers, same folder,
same prompt, alternately.

generate.py --folder HF_FOLDER --generate PROGRAM [--generate PROGRAM...] [--threads 1]
            [--tokens 120] [--rounds 3] [--prompt TEXT] [--dtype float32|bfloat16]

Before anything is timed, the continuations must equal those of transformers in fp32; --dtype is the
dtype in which transformers is then timed. The time per token is the difference between a long and a
short continuation, divided by the difference in tokens, so that neither loading nor the prompt
counts. The time to the first token is that of whole processes, imports and loading included.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

SHORT = 8

FIRST_TOKEN = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, dtype, threads, prompt = sys.argv[1:]
torch.set_num_threads(int(threads))
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
inputs = tokenizer(prompt, return_tensors="pt")
with torch.inference_mode():
    print(model.generate(**inputs, max_new_tokens=1, do_sample=False, pad_token_id=0)[0, -1])
"""


def with_program(program, arguments, count):
    """(text, wall seconds, processor seconds) of one process that adds `count` tokens."""
    before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    text = subprocess.run(
        [
            program,
            "--load",
            arguments.folder,
            "--prompt",
            arguments.prompt,
            "--max-new-tokens",
            str(count),
            "--greedy",
            "--device",
            "cpu",
            "--cpu-threads",
            str(arguments.threads),
            "--ignore-eod",
        ],
        check=True,
        stdout=subprocess.PIPE,
    ).stdout.decode("utf-8", "replace")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (
        text.removesuffix("\n"),
        time.perf_counter() - wall,
        sum(getattr(after, k) - getattr(before, k) for k in ("ru_utime", "ru_stime")),
    )


def with_transformers(model, tokenizer, arguments, count):
    """The same in this process, with the model already loaded."""
    processor, wall = time.process_time(), time.perf_counter()
    inputs = tokenizer(arguments.prompt, return_tensors="pt")
    with torch.inference_mode():
        ids = model.generate(
            **inputs,
            max_new_tokens=count,
            min_new_tokens=count,
            do_sample=False,
            use_cache=True,
            pad_token_id=0,
        )
    return tokenizer.decode(ids[0]), time.perf_counter() - wall, time.process_time() - processor


def first_token(command):
    """Wall seconds of a process that generates one token."""
    wall = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - wall


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True)
    parser.add_argument("--generate", action="append", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--prompt", default="The history of the city begins with")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    tokenizer = AutoTokenizer.from_pretrained(arguments.folder)
    model = AutoModelForCausalLM.from_pretrained(arguments.folder, dtype=torch.float32).eval()
    sides = {
        ("generate" if i == 0 else f"generate of {program}"): lambda count, program=program: (
            with_program(program, arguments, count)
        )
        for i, program in enumerate(arguments.generate)
    }
    sides["transformers"] = lambda count: with_transformers(model, tokenizer, arguments, count)
    texts = {name: side(arguments.tokens)[0] for name, side in sides.items()}
    assert len(set(texts.values())) == 1, texts
    model.to(getattr(torch, arguments.dtype))
    times, starts = {name: [] for name in sides}, {name: [] for name in sides}
    firsts = {
        name: [
            arguments.generate[i],
            "--load",
            arguments.folder,
            "--prompt",
            arguments.prompt,
            "--max-new-tokens",
            "1",
            "--greedy",
            "--device",
            "cpu",
            "--cpu-threads",
            str(arguments.threads),
        ]
        for i, name in enumerate(list(sides)[:-1])
    }
    firsts["transformers"] = [
        sys.executable,
        "-c",
        FIRST_TOKEN,
        arguments.folder,
        arguments.dtype,
        str(arguments.threads),
        arguments.prompt,
    ]
    for _ in range(arguments.rounds):
        for name, side in sides.items():
            short, whole = side(SHORT), side(arguments.tokens)
            times[name].append(
                [(w - s) / (arguments.tokens - SHORT) for w, s in zip(whole[1:], short[1:])]
            )
            starts[name].append(first_token(firsts[name]))
    print(
        f"{arguments.folder}: {arguments.tokens} tokens, {arguments.threads} thread(s), "
        f"same text of {len(texts['generate'])} characters in fp32; "
        f"transformers in {arguments.dtype}; "
        f"torch {torch.__version__}, {arguments.rounds} rounds, load {os.getloadavg()[0]:.1f}"
    )
    for name, measured in times.items():
        wall, processor = (statistics.median(column) for column in zip(*measured))
        ratios = [
            statistics.median(m[i] / o[i] for m, o in zip(measured, times["generate"]))
            for i in (0, 1)
        ]
        print(
            f"  {name:12} {1 / wall:8.1f} tokens/s, {processor * 1e3:7.2f} ms processor a token; "
            f"first token after {statistics.median(starts[name]):.2f} s; "
            f"over ours {ratios[0]:.2f} {ratios[1]:.2f}"
        )


if __name__ == "__main__":
    main()
