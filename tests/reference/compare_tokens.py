#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares bpe-tokenize with Hugging Face tokenizers and tiktoken on text that no golden holds.

    python compare_tokens.py BIN_FOLDER SHARED_DATA_FOLDER [SEED [MEGABYTES [TEXT_FOLDER...]]]
Texts: random Unicode of several mixtures, real text with bytes changed, and all readable files in
TEXT_FOLDERs (default: the system's documentation). Each round writes one JSON Lines file, runs
bpe-tokenize with 1, 2 and 5 workers for GPT-2, GPT-NeoX-20B and cl100k, and compares every
document's ids with the Python package's. Prints one line per vocabulary and exits 1 at the first
difference, with the text.
"""

import array
import base64
import gzip
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

import tiktoken
import tokenizers
from tokenizers import Tokenizer

CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)


def random_character(chance, mixture):
    while True:
        if mixture == 0:
            code = chance.randrange(0x110000)
        elif mixture == 1:
            code = chance.choice(
                [
                    int(code, 16)
                    for code in (
                        "20 0A 0D 09 27 2019 73 6C 65 76 31 32 41 7A A0 3000 85 2028 200B 301 30A "
                        "E9 130 131 17F 212A DF 660"
                    ).split()
                ]
            )
        elif mixture == 2:
            code = chance.randrange(0x20, 0x3000)
        elif mixture == 3:
            code = chance.choice(
                [
                    chance.randrange(0x20, 0x7F),
                    chance.randrange(0x300, 0x370),
                    chance.randrange(0xAC00, 0xD7A4),
                    chance.randrange(0x1100, 0x1200),
                    chance.randrange(0xF900, 0xFB00),
                    0x20,
                ]
            )
        else:
            code = chance.choice(
                [
                    chance.randrange(0x1F000, 0x1FB00),
                    0x200D,
                    0xFE0F,
                    chance.randrange(0x4E00, 0x9FFF),
                    chance.randrange(0x900, 0xE00),
                    0x20,
                    0x0A,
                ]
            )
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def random_text(chance):
    mixture = chance.randrange(5)
    size = int(2 ** chance.uniform(0, 11))
    text = "".join(random_character(chance, mixture) for _ in range(size))
    if chance.random() < 0.2:  # runs, which the loops of patterns meet
        text = "".join(c * int(2 ** chance.uniform(0, 9)) for c in text[:60])
    if chance.random() < 0.05:
        text += chance.choice(["<|endoftext|>", "<|padding|>", "<|fim_prefix|>"]) + text[:5]
    return text


def mutated(chance, raw):
    begin = chance.randrange(max(1, len(raw) - 4000))
    piece = bytearray(raw[begin : begin + chance.randrange(1, 4000)])
    for _ in range(max(1, len(piece) // 20)):
        piece[chance.randrange(len(piece))] = chance.randrange(256)
    return bytes(piece).decode("utf-8", "replace" if chance.random() < 0.5 else "ignore")


def real_texts(folders, limit):
    texts = []
    total = 0
    for folder in folders:
        for here, inside, names in os.walk(folder):
            inside.sort()
            for name in sorted(names):
                path = os.path.join(here, name)
                try:
                    raw = open(path, "rb").read(300000)
                    if raw[:2] == b"\x1f\x8b":
                        raw = gzip.decompress(open(path, "rb").read())[:300000]
                    text = raw.decode("utf-8")
                except (OSError, UnicodeDecodeError, EOFError, gzip.BadGzipFile):
                    continue
                texts.append(text)
                total += len(raw)
                if total > limit:
                    return texts
    return texts


def read_dataset(prefix):
    idx = open(prefix + ".idx", "rb").read()
    code, sequences, _ = struct.unpack("<BQQ", idx[17:34])
    lengths = array.array("i")
    lengths.frombytes(idx[34 : 34 + 4 * sequences])
    pointers = array.array("q")
    pointers.frombytes(idx[34 + 4 * sequences : 34 + 12 * sequences])
    ids = array.array("H" if code == 8 else "i")
    ids.frombytes(open(prefix + ".bin", "rb").read())
    return [list(ids[p // ids.itemsize : p // ids.itemsize + n]) for p, n in zip(pointers, lengths)]


def main():
    programs, data = sys.argv[1:3]
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    megabytes = float(sys.argv[4]) if len(sys.argv) > 4 else 8
    folders = sys.argv[5:] or [
        "/usr/share/doc",
        "/usr/share/perl",
        "/usr/lib/python3",
        "/usr/share/i18n",
    ]
    chance = random.Random(seed)
    raw = b"".join(
        open(os.path.join(data, name), "rb").read()
        for name in ("enwiki-sample.jsonl", "wagahai-ja.txt", "wikitext2-valid.txt")
    )
    texts = real_texts(folders, megabytes * 4e5)
    chance.shuffle(texts)
    total = sum(len(text) for text in texts)
    while total < megabytes * 1e6:
        text = random_text(chance) if chance.random() < 0.7 else mutated(chance, raw)
        texts.append(text)
        total += len(text)
    chance.shuffle(texts)
    texts = [text for text in texts if text]

    gpt2 = Tokenizer.from_file(os.path.join(data, "gpt2-tokenizer.json"))
    gpt2.encode_special_tokens = True
    neox = Tokenizer.from_file(os.path.join(data, "gpt-neox-20b-tokenizer.json"))
    neox.encode_special_tokens = True
    ranks = {}
    for line in gzip.open(os.path.join(data, "cl100k_base.tiktoken.gz")):
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    cl100k = tiktoken.Encoding(
        "cl100k_base", pat_str=CL100K, mergeable_ranks=ranks, special_tokens={}
    )
    judges = [
        (
            "gpt2",
            ["--vocab-file", data + "/gpt2-vocab.json", "--merge-file", data + "/gpt2-merges.txt"],
            lambda text: gpt2.encode(text, add_special_tokens=False).ids,
        ),
        (
            "gpt-neox-20b",
            ["--vocab-file", data + "/gpt-neox-20b-tokenizer.json"],
            lambda text: neox.encode(text, add_special_tokens=False).ids,
        ),
        (
            "cl100k",
            ["--tokenizer-model", data + "/cl100k_base.tiktoken.gz"],
            cl100k.encode_ordinary,
        ),
    ]
    print(
        "tokenizers",
        tokenizers.__version__,
        "tiktoken",
        tiktoken.__version__,
        "seed",
        seed,
        "texts",
        len(texts),
        "megabytes",
        round(sum(len(t.encode()) for t in texts) / 1e6, 1),
        flush=True,
    )
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "in.jsonl")
        with open(path, "w", encoding="utf-8", newline="\n") as out:
            for text in texts:
                out.write(json.dumps({"text": text}, ensure_ascii=chance.random() < 0.5) + "\n")
        for name, flags, encode in judges:
            files = []
            for workers in (1, 2, 5):
                prefix = os.path.join(work, "%s%d" % (name, workers))
                subprocess.run(
                    [
                        os.path.join(programs, "bpe-tokenize"),
                        "-q",
                        "--no-pad-vocab-size",
                        "--input",
                        path,
                        "--output-prefix",
                        prefix,
                        "--workers",
                        str(workers),
                        *flags,
                    ],
                    check=True,
                )
                files.append(
                    open(prefix + "_text_document.bin", "rb").read()
                    + open(prefix + "_text_document.idx", "rb").read()
                )
            if files[0] != files[1] or files[0] != files[2]:
                sys.exit("%s: the number of workers changes the bytes" % name)
            made = iter(read_dataset(os.path.join(work, name + "1_text_document")))
            tokens = 0
            for text in texts:
                want = encode(text)
                got = next(made) if want else []
                if want != got:
                    at = next(
                        (i for i, (a, b) in enumerate(zip(want, got)) if a != b),
                        min(len(want), len(got)),
                    )
                    sys.exit(
                        "%s: token %d of %r: wanted %s, got %s"
                        % (name, at, text[:2000], want[at : at + 8], got[at : at + 8])
                    )
                tokens += len(want)
            print(
                "%s: %d documents, %d tokens: equal, with 1, 2 and 5 workers"
                % (name, len(texts), tokens),
                flush=True,
            )


main()
