#!/usr/bin/env python3
"""Tokens a second of greedy generation on the CPU in fp32: generate beside transformers, same folder, same prompt, in turn.

generate.py --folder HF_FOLDER --generate PROGRAM [--generate PROGRAM...] [--threads 1] [--tokens 120] [--rounds 3] [--prompt TEXT]

The continuations must be identical before anything is timed. A token's time is that of a long continuation less that of a short
one, over the tokens between, so that neither loading nor the prompt counts; those are printed apart.
"""
import argparse
import os
import resource
import statistics
import subprocess
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

SHORT = 8


def with_program(program, arguments, count):
    """(text, wall seconds, processor seconds) of one process that adds `count` tokens."""
    before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    text = subprocess.run([program, "--load", arguments.folder, "--prompt", arguments.prompt, "--max-new-tokens", str(count), "--greedy",
                           "--device", "cpu", "--cpu-threads", str(arguments.threads), "--ignore-eod"],
                          check=True, stdout=subprocess.PIPE).stdout.decode("utf-8", "replace")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return text.removesuffix("\n"), time.perf_counter() - wall, sum(getattr(after, k) - getattr(before, k) for k in ("ru_utime", "ru_stime"))


def with_transformers(model, tokenizer, arguments, count):
    """The same in this process, the model loaded."""
    processor, wall = time.process_time(), time.perf_counter()
    inputs = tokenizer(arguments.prompt, return_tensors="pt")
    with torch.inference_mode():
        ids = model.generate(**inputs, max_new_tokens=count, min_new_tokens=count, do_sample=False, use_cache=True, pad_token_id=0)
    return tokenizer.decode(ids[0]), time.perf_counter() - wall, time.process_time() - processor


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True)
    parser.add_argument("--generate", action="append", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt", default="The history of the city begins with")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    tokenizer = AutoTokenizer.from_pretrained(arguments.folder)
    model = AutoModelForCausalLM.from_pretrained(arguments.folder, dtype=torch.float32).eval()
    sides = {("generate" if i == 0 else f"generate of {program}"): lambda count, program=program: with_program(program, arguments, count)
             for i, program in enumerate(arguments.generate)}
    sides["transformers"] = lambda count: with_transformers(model, tokenizer, arguments, count)
    texts = {name: side(arguments.tokens)[0] for name, side in sides.items()}
    assert len(set(texts.values())) == 1, texts
    times, starts = {name: [] for name in sides}, {name: [] for name in sides}
    for _ in range(arguments.rounds):
        for name, side in sides.items():
            short, whole = side(SHORT), side(arguments.tokens)
            times[name].append([(w - s) / (arguments.tokens - SHORT) for w, s in zip(whole[1:], short[1:])])
            starts[name].append(short[1])
    print(f"{arguments.folder}: {arguments.tokens} tokens, {arguments.threads} thread(s), same text of {len(texts['generate'])} characters; "
          f"torch {torch.__version__}, {arguments.rounds} rounds, load {os.getloadavg()[0]:.1f}")
    for name, measured in times.items():
        wall, processor = (statistics.median(column) for column in zip(*measured))
        ratios = [statistics.median(m[i] / o[i] for m, o in zip(measured, times["generate"])) for i in (0, 1)]
        print(f"  {name:12} {1 / wall:8.1f} tokens/s, {processor * 1e3:7.2f} ms processor a token; first {SHORT} tokens after "
              f"{statistics.median(starts[name]):.2f} s; over ours {ratios[0]:.2f} {ratios[1]:.2f}")


if __name__ == "__main__":
    main()
