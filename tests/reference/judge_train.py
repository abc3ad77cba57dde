#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares bpe-train's vocabulary and merges with those of Hugging Face's BpeTrainer, on corpora
and settings that are in no golden file.

    python judge_train.py BIN_FOLDER SHARED_DATA_FOLDER [SEED [CASES]]
Corpora: random Unicode, pieces of prose, few words repeated (ties in counts), runs. Settings: size,
least frequency, special tokens, alphabet, a leading space; 1, 2 and 5 workers, and little memory.
Exits 1 at the first difference.
"""

import json
import os
import random
import subprocess
import sys
import tempfile

import tokenizers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

BIN, DATA = sys.argv[1:3]
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 1
CASES = int(sys.argv[4]) if len(sys.argv) > 4 else 30


def texts_of(chance, prose):
    kind = chance.randrange(5)
    texts = []
    for _ in range(chance.choice([0, 1, 5, 60, 400])):
        size = int(2 ** chance.uniform(0, 10))
        if kind == 0:
            text = "".join(
                chr(chance.choice([chance.randrange(0x20, 0xD800), chance.randrange(0x20, 0x7F)]))
                for _ in range(size)
            )
        elif kind == 1:
            begin = chance.randrange(len(prose))
            text = prose[begin : begin + 4 * size]
        elif kind == 2:
            text = " ".join(
                chance.choice(
                    ["ab", "ba", "aab", "abab", "bab", "é", "éa", "🙂b", "'s", "12", "21"]
                )
                for _ in range(size)
            )
        elif kind == 3:
            text = "".join(
                chance.choice("ab \n") * chance.randrange(1, 40) for _ in range(size // 10 + 1)
            )
        else:
            text = "".join(chance.choice("abc ") for _ in range(size))
        texts.append(text)
    return texts


def main():
    chance = random.Random(SEED)
    prose = "".join(
        open(os.path.join(DATA, name), encoding="utf-8").read()
        for name in ("shakespeare.txt", "wagahai-ja.txt")
    )
    merges = 0
    for number in range(CASES):
        texts = texts_of(chance, prose)
        size = chance.choice([1, 256, 257, 300, 700, 3000, 30000])
        least = chance.choice([0, 1, 2, 2, 5])
        specials = chance.choice([[], ["<|endoftext|>"], ["<s>", "the", "a", "<s>"]])
        full, prefix = chance.random() < 0.7, chance.random() < 0.3
        peer = Tokenizer(models.BPE())
        peer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet()) if full else []
        peer.train_from_iterator(
            texts,
            trainers.BpeTrainer(
                vocab_size=size,
                min_frequency=least,
                initial_alphabet=alphabet,
                special_tokens=specials,
                show_progress=False,
            ),
        )
        want = json.loads(peer.to_str())["model"]
        with tempfile.TemporaryDirectory() as work:
            path = os.path.join(work, "in.jsonl")
            with open(path, "w", encoding="utf-8") as out:
                out.writelines(
                    json.dumps({"text": text}, ensure_ascii=chance.random() < 0.5) + "\n"
                    for text in texts
                )
            for workers, memory in ((1, "2G"), (2, "32M"), (5, "2G")):
                folder = os.path.join(work, f"v{workers}")
                command = [
                    os.path.join(BIN, "bpe-train"),
                    "-q",
                    "--input",
                    path,
                    "--vocab-size",
                    str(size),
                    "--min-frequency",
                    str(least),
                    "--special-tokens",
                    *(specials or [""]),
                    "--alphabet",
                    "all" if full else "seen",
                    "--output",
                    folder,
                    "--workers",
                    str(workers),
                    "--mem",
                    memory,
                ] + ["--add-prefix-space"] * prefix
                subprocess.run(command, check=True)
                vocab = json.load(open(os.path.join(folder, "vocab.json"), encoding="utf-8"))
                lines = (
                    open(os.path.join(folder, "merges.txt"), encoding="utf-8").read().split("\n")
                )
                got = [line.split(" ") for line in lines[1:] if line]
                model = json.load(open(os.path.join(folder, "tokenizer.json"), encoding="utf-8"))[
                    "model"
                ]
                where = f"case {number}, {workers} workers: {command}"
                if got != want["merges"]:
                    at = next(
                        (i for i, (a, b) in enumerate(zip(want["merges"], got)) if a != b),
                        min(len(got), len(want["merges"])),
                    )
                    sys.exit(
                        f"{where}: merge {at}: wanted {want['merges'][at : at + 3]}, "
                        f"got {got[at : at + 3]}"
                    )
                if vocab != want["vocab"] or model["vocab"] != want["vocab"]:
                    sys.exit(f"{where}: the vocabularies differ")
                loaded = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
                for text in texts[:5]:
                    if (
                        loaded.encode(text, add_special_tokens=False).ids
                        != peer.encode(text, add_special_tokens=False).ids
                        and not specials
                    ):
                        sys.exit(f"{where}: tokenizer.json encodes {text!r} otherwise")
        merges += len(want["merges"])
    print(
        "tokenizers",
        tokenizers.__version__,
        "seed",
        SEED,
        CASES,
        "cases,",
        merges,
        "merges: equal, with 1, 2 and 5 workers",
    )


main()
