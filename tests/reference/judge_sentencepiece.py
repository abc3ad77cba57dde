#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares bpe-tokenize and inspect-dataset with sentencepiece, tokenizers, mistral_common and
tiktoken, in both directions.

    python judge_sentencepiece.py BIN_FOLDER MODEL_FOLDER TEXT_FILE [SEED [NUM_TEXTS]]

MODEL_FOLDER is what sentencepiece_models.py writes. The texts are random Unicode of several
mixtures, runs, pieces of TEXT_FILE, and both with special and added tokens inserted. Exits 1 at the
first text whose ids differ, or that decodes differently from the library.
"""

import base64
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

import numpy
import sentencepiece
import tiktoken
import tokenizers
from mistral_common.tokens.tokenizers.tekken import SpecialTokenPolicy, Tekkenizer

import sentencepiece_models as made

MARKS = [
    "<s>",
    "</s>",
    "<unk>",
    "<bos>",
    "<eos>",
    "<pad>",
    "<mask>",
    "<0x0A>",
    "<0xE2>",
    "<|user|>",
    "wordy",
    "two words",
    " wordy ",
    "in text",
    "\u2581",
    "\u2581\u2581",
    "\u2581qmark",
    " qmark",
    " \u2581x",
    "\n\n",
    "\t",
    "   ",
    "<table>",
    "ABC",
    "\uff21",
    "a b",
    "[INST]",
    "<SPECIAL_50>",
    "<CLS>",
    "<EOD>",
    "<sep>",
    "\u2581\u2581x",
    "<b>",
]


def random_character(chance, mixture):
    while True:
        if mixture == 0:
            code = chance.randrange(0x110000)
        elif mixture == 1:
            code = chance.choice(
                [
                    int(code, 16)
                    for code in (
                        "20 20 0A 0D 09 27 73 6C 65 31 32 41 7A A0 3000 85 2028 200B 301 30A E9 "
                        "2581 FF21 FB01 2126 1E9B AD FEFF 0"
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
        elif mixture == 4:
            code = chance.choice(
                [
                    chance.randrange(0x1F000, 0x1FB00),
                    0x200D,
                    0xFE0F,
                    chance.randrange(0x4E00, 0x9FFF),
                    chance.randrange(0x3040, 0x30FF),
                    chance.randrange(0xFF01, 0xFFEF),
                    0x20,
                    0x0A,
                ]
            )
        elif mixture == 5:
            code = chance.choice(b"etaoin shrdlu  theing,.  ")
        else:
            code = chance.randrange(0x20)
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def random_text(chance, real):
    kind = chance.random()
    size = int(2 ** chance.uniform(0, 10))
    if kind < 0.3:
        at = chance.randrange(len(real))
        text = real[at : at + size]
    else:
        mixture = chance.randrange(7)
        text = "".join(random_character(chance, mixture) for _ in range(size))
    if kind > 0.9:
        text = "".join(c * int(2 ** chance.uniform(0, 7)) for c in text[:40])
    for _ in range(chance.choice([0, 0, 0, 1, 3])):
        at = chance.randrange(len(text) + 1)
        text = text[:at] + chance.choice(MARKS) + text[at:]
    return chance.choice(["", "", " ", "  ", "\u2581"]) + text + chance.choice(["", "", " ", "\n "])


def documents(prefix):
    idx = open(prefix + ".idx", "rb").read()
    dtype = {4: numpy.int32, 8: numpy.uint16}[idx[17]]
    (count,) = struct.unpack_from("<Q", idx, 18)
    lengths = numpy.frombuffer(idx, numpy.int32, count, 34)
    ids = numpy.fromfile(prefix + ".bin", dtype)
    ends = numpy.cumsum(lengths)
    return [ids[end - length : end].tolist() for length, end in zip(lengths, ends)]


class Judge:
    def __init__(self, folder, texts):
        self.bin, self.work = folder, tempfile.mkdtemp()
        self.texts = [text for text in texts if text]
        self.input = os.path.join(self.work, "texts.jsonl")
        with open(self.input, "w") as out:
            for text in self.texts:
                out.write(json.dumps({"text": text}) + "\n")
        self.failed = False

    def tool(self, name, *flags):
        return subprocess.run(
            [os.path.join(self.bin, name), *flags], check=True, stdout=subprocess.PIPE
        ).stdout

    def check(self, label, model, flags, encode, decode=None):
        """Both directions for all texts. `encode` and `decode` are the library's."""
        want = [encode(text) for text in self.texts]
        keep = [i for i, ids in enumerate(want) if ids]
        prefix = os.path.join(self.work, "out")
        self.tool(
            "bpe-tokenize",
            "--input",
            self.input,
            "--output-prefix",
            prefix,
            "--tokenizer-model",
            model,
            "--force",
            "--workers",
            "2",
            "-q",
            *flags,
        )
        have = documents(prefix + "_text_document")
        if len(have) != len(keep):
            return self.fail(label, "documents", len(have), len(keep))
        for i, ids in zip(keep, have):
            if ids != list(want[i]):
                return self.fail(label, repr(self.texts[i]), ids, list(want[i]))
        if decode:
            shown = self.tool(
                "inspect-dataset",
                "peek",
                prefix + "_text_document",
                "--tokenizer-model",
                model,
                "--count",
                str(len(want)),
                "--max-tokens",
                "0",
            ).decode("utf-8", "replace")
            lines = "".join(
                f"document {k}: {count(len(ids))}\n{decode(list(ids))}\n"
                for k, ids in enumerate(want)
            )
            if shown != lines:
                at = next(k for k in range(len(lines)) if shown[k : k + 1] != lines[k : k + 1])
                return self.fail(
                    label,
                    "decoded",
                    repr(shown[max(0, at - 200) : at + 60]),
                    repr(lines[max(0, at - 200) : at + 60]),
                )
        print(
            f"{label}: {len(keep)} texts, {sum(map(len, want))} ids"
            + (", decoded" if decode else ""),
            flush=True,
        )

    def fail(self, label, what, have, want):
        self.failed = True
        print(f"{label}: {what}\n  have {have}\n  want {want}", flush=True)


def count(number):
    return f"{number:,} token" + ("" if number == 1 else "s")


def main():
    folder, models, text_file = sys.argv[1:4]
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    num_texts = int(sys.argv[5]) if len(sys.argv) > 5 else 2000
    chance = random.Random(seed)
    real = open(text_file, encoding="utf-8").read()
    judge = Judge(folder, [random_text(chance, real) for _ in range(num_texts)])
    for name in made.MODELS:
        path = os.path.join(models, name + ".model")
        library = sentencepiece.SentencePieceProcessor(model_file=path)
        judge.check(name, path, [], library.encode, library.decode)
        bos = library.bos_id()
        judge.check(
            name + " Llama2Tokenizer",
            path,
            ["--tokenizer-type", "Llama2Tokenizer"],
            lambda text: [bos] + library.encode(text),
        )
    for name in made.JSONS:
        path = os.path.join(models, name + ".json")
        library = tokenizers.Tokenizer.from_file(path)
        judge.check(
            name,
            path,
            ["--tokenizer-type", "HuggingFaceTokenizer"],
            lambda text: library.encode(text).ids,
            lambda ids: library.decode(ids, skip_special_tokens=False),
        )
        library.encode_special_tokens = True
        judge.check(
            name + " special tokens as text",
            path,
            [],
            lambda text: library.encode(text, add_special_tokens=False).ids,
        )
    for name in ("tekken-v3", "tekken-v11"):
        path = os.path.join(models, name + ".json")
        library = Tekkenizer.from_file(path)
        judge.check(
            name,
            path,
            [],
            lambda text: library.encode(text, bos=False, eos=False),
            lambda ids: library.decode(ids, SpecialTokenPolicy.KEEP),
        )
    path = os.path.join(models, "nemotron.json")
    entries = json.load(open(path))

    for version, pattern in (("v1", made.NEMOTRON), ("v2", made.TEKKEN)):
        size, special = len(entries) + 50, 100
        ranks = {
            base64.b64decode(e["token_bytes"]): i + special
            for i, e in enumerate(entries[: size - special])
        }
        library = tiktoken.Encoding(
            "nemotron", pat_str=pattern, mergeable_ranks=ranks, special_tokens={}
        )
        judge.check(
            "nemotron " + version,
            path,
            [
                "--tokenizer-type",
                "TikTokenizer",
                "--tiktoken-pattern",
                version,
                "--vocab-size",
                str(size),
                "--tiktoken-num-special-tokens",
                str(special),
            ],
            library.encode_ordinary,
        )
    return judge.failed


if __name__ == "__main__":
    sys.exit(main())
