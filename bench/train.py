#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Speed of bpe-train against Hugging Face's BpeTrainer (train_from_iterator) on the same text.

    python bench/train.py [--bin FOLDER] [--megabytes 3,100] [--vocab-size 32000] [--workers 2]
        [--rounds 3] TEXT_OR_FOLDER...
The corpus: the UTF-8 files given, and those of at most 1 MB in the folders given, in the order of
their names, as documents of JSON lines, up to that many MB (10^6 bytes) of text. The answer is
checked first: the same vocabulary and merges. Then each round runs both in turn; medians of
processor and wall seconds, and the medians of the rounds' ratios. The peer may use every processor;
its imports and the reading of the corpus are not counted, the program's are.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import tokenizers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers


def documents(sources, most_bytes):
    """Texts of valid UTF-8, up to `most_bytes`."""
    paths = []
    for source in sources:
        if os.path.isdir(source):
            paths += sorted(
                os.path.join(folder, name) for folder, _, names in os.walk(source) for name in names
            )
        else:
            paths.append(source)
    total = 0
    for path in paths:
        if not os.path.isfile(path) or (path not in sources and os.path.getsize(path) > 1_000_000):
            continue
        try:
            text = open(path, "rb").read(most_bytes - total).decode()
        except (OSError, UnicodeDecodeError):
            continue
        if text and "\0" not in text:
            yield text
            total += len(text.encode())
        if total >= most_bytes:
            return


def measured(work):
    """Wall and processor seconds of this process and its ended children, and the result of
    work()."""

    def processor():
        return sum(
            usage.ru_utime + usage.ru_stime
            for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        )

    wall, used = time.monotonic(), processor()
    result = work()
    return time.monotonic() - wall, processor() - used, result


def peer_trains(texts, size):
    peer = Tokenizer(models.BPE())
    peer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    peer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=size,
            min_frequency=2,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            special_tokens=["<|endoftext|>"],
            show_progress=False,
        ),
    )
    return peer


def check(folder, peer, size):
    model = json.loads(peer.to_str())["model"]
    vocabulary = json.load(open(os.path.join(folder, "vocab.json"), encoding="utf-8"))
    lines = open(os.path.join(folder, "merges.txt"), encoding="utf-8").read().split("\n")[1:]
    if (
        vocabulary != model["vocab"]
        or [line.split(" ") for line in lines if line] != model["merges"]
    ):
        sys.exit("the vocabularies differ")
    if len(vocabulary) != size:
        print(f"only {len(vocabulary)} tokens could be learned")


def median(rows, of):
    return statistics.median(of(row) for row in rows)


def one_size(arguments, megabytes, work):
    texts = list(documents(arguments.sources, int(megabytes * 1e6)))
    size = sum(len(text.encode()) for text in texts)
    path, folder = os.path.join(work, "in.jsonl"), os.path.join(work, "vocabulary")
    with open(path, "w", encoding="utf-8") as out:
        out.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    train = [
        os.path.join(arguments.bin, "bpe-train"),
        "-q",
        "-f",
        "--input",
        path,
        "--vocab-size",
        str(arguments.vocab_size),
        "--output",
        folder,
        "--workers",
        str(arguments.workers),
    ]
    rows = []
    for number in range(arguments.rounds):
        ours = measured(lambda: subprocess.run(train, check=True))
        theirs = measured(lambda: peer_trains(texts, arguments.vocab_size))
        if number == 0:
            check(folder, theirs[2], arguments.vocab_size)
        rows.append((ours, theirs))
    print(
        f"| {size / 1e6:.1f} | {median(rows, lambda r: r[0][1]):.2f} | "
        f"{median(rows, lambda r: r[1][1]):.2f} | "
        f"{median(rows, lambda r: r[1][1] / r[0][1]):.1f} | "
        f"{median(rows, lambda r: r[0][0]):.2f} | {median(rows, lambda r: r[1][0]):.2f} | "
        f"{median(rows, lambda r: r[1][0] / r[0][0]):.1f} |",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--megabytes", default="3,100")
    parser.add_argument("--vocab-size", type=int, default=32000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("sources", nargs="+")
    arguments = parser.parse_args()
    print(
        f"tokenizers {tokenizers.__version__}, {os.cpu_count()} processors, "
        f"load {os.getloadavg()[0]:.0f}, "
        f"{arguments.vocab_size} tokens, {arguments.workers} workers, {arguments.rounds} rounds"
    )
    print(
        "| MB of text | bpe-train, processor s | Hugging Face | ratio | wall s | Hugging Face | "
        "ratio |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for megabytes in arguments.megabytes.split(","):
        with tempfile.TemporaryDirectory() as work:
            one_size(arguments, float(megabytes), work)


main()
