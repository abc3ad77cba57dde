#!/usr/bin/env python3
"""Goldens of tests/tok/train_test.cc: what Hugging Face's BpeTrainer learns, as
digests of its files.

usage: make_train_goldens.py DATA_DIR OUT_DIR

Random texts are those of make_tok_goldens.py, which golden_test.cc can make too.
SPDX-License-Identifier: MIT
"""

import hashlib, json, os, sys

import tokenizers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

DATA, OUT = sys.argv[1:3]
source = open(
    os.path.join(os.path.dirname(os.path.abspath(__file__)), "make_tok_goldens.py")
).read()
scope = {}
# The rules of random texts.
exec(source[source.index("ALPHABET =") : source.index("BLOCK =")], scope)
exec(source[source.index("class Random:") : source.index("def code_points")], scope)

ROWS = [
    ("random", 21, 3000, 2000, 0, True, []),
    ("random", 22, 3000, 5000, 2, False, ["<|endoftext|>", "the"]),
    ("random", 23, 300, 30000, 0, True, ["<s>", "<s>", "word"]),
    ("random", 24, 2000, 257, 0, True, []),
    ("tool", 0, 3000, 700, 2, True, ["<|endoftext|>"]),  # as tests/tools/bpe-train.sh writes them
    ("shakespeare.txt", 0, 0, 5000, 0, False, ["the"]),
    ("shakespeare.txt", 0, 0, 60000, 0, True, []),
    ("wikitext2-valid.txt", 0, 0, 32000, 2, True, ["<|endoftext|>"]),
    ("wagahai-ja.txt", 0, 0, 8000, 2, True, ["<|endoftext|>"]),
]
rows = []
for text, seed, count, size, least, full, special in ROWS:
    if text == "random":
        texts = scope["random_texts"](seed, count)
    elif text == "tool":
        texts = [
            f"Line {i}: the quick brown fox {i * i % 997} jumps over café; don't!"
            for i in range(1, count + 1)
        ]
    else:
        with open(os.path.join(DATA, text), encoding="utf-8", newline="") as file:
            texts = [file.read()]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet()) if full else []
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=size,
            min_frequency=least,
            initial_alphabet=alphabet,
            special_tokens=special,
            show_progress=False,
        ),
    )
    model = json.loads(tokenizer.to_str())["model"]
    vocab = json.dumps(
        dict(sorted(model["vocab"].items(), key=lambda item: item[1])),
        ensure_ascii=False,
        separators=(",", ":"),
    )
    merges = "#version: 0.2\n" + "".join(" ".join(merge) + "\n" for merge in model["merges"])
    rows.append(
        {
            "text": text,
            "seed": seed,
            "count": count,
            "vocab_size": size,
            "min_frequency": least,
            "full_alphabet": full,
            "special_tokens": special,
            "tokens": len(model["vocab"]),
            "merges": len(model["merges"]),
            "vocab_json": hashlib.sha256(vocab.encode()).hexdigest(),
            "merges_txt": hashlib.sha256(merges.encode()).hexdigest(),
        }
    )
with open(os.path.join(OUT, "train.json"), "w", encoding="utf-8") as file:
    json.dump({"tokenizers": tokenizers.__version__, "rows": rows}, file, indent=1)
    file.write("\n")
