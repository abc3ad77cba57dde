#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares bpe-tokenize's files with those of Megatron's two preprocessing scripts, on corpora that
are in no golden file.

    python judge_preprocess.py BIN_FOLDER SHARED_DATA_FOLDER [SEED [ROUNDS]]
Each round writes one JSON Lines file (random Unicode, empty documents, lists, special tokens
literally in the text, several keys, every form of JSON that Python accepts) and lets every
tokenizer below make datasets from it: tokenizers built by megatron.core's build_tokenizer with the
flags of megatron.training's parser, files written by megatron.core's IndexedDatasetBuilder,
documents treated as preprocess_data.py's Encoder does; and what preprocess_data_fast.py does, with
gigatoken. bpe-tokenize makes them with 1, 2 and 5 workers. .bin and .idx must be the same bytes.
Exits 1 at the first difference.
"""

import argparse
import json
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unicodedata
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_HUB_OFFLINE"] = "1"

import awkward
import gigatoken
import numpy
import tokenizers
import torch
import transformers
import megatron.core
from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder
from megatron.core.tokenizers.text.libraries import megatron_hf_tokenizer
from megatron.core.tokenizers.utils.build_tokenizer import build_tokenizer
from megatron.training.arguments import _add_tokenizer_args

BIN, DATA = sys.argv[1:3]
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 1
ROUNDS = int(sys.argv[4]) if len(sys.argv) > 4 else 3
HERE = os.path.dirname(os.path.abspath(__file__))
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIALS = ["<|endoftext|>", "<|begin_of_text|>", "<|padding|>", "<|im_start|>", "<s>", "<mask>"]


def random_character(chance, kind):
    while True:
        code = {
            0: lambda: chance.randrange(0x110000),
            1: lambda: chance.choice(
                [
                    int(code, 16)
                    for code in (
                        "20 0A 0D 09 27 2019 73 6C 31 41 A0 3000 85 2028 200B 301 323 30A E9 130 "
                        "17F 212A DF 660 1100 1161"
                    ).split()
                ]
            ),
            2: lambda: chance.randrange(0x20, 0x3000),
            3: lambda: chance.choice(
                [
                    chance.randrange(0x20, 0x7F),
                    chance.randrange(0xAC00, 0xD7A4),
                    0x20,
                    chance.randrange(0x1100, 0x1200),
                    chance.randrange(0xF900, 0xFB00),
                ]
            ),
            4: lambda: chance.randrange(0x20, 0x7F),
        }[kind]()
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def random_text(chance, prose):
    kind = chance.randrange(7)
    if kind >= 5:
        begin = chance.randrange(len(prose))
        text = prose[begin : begin + int(2 ** chance.uniform(0, 12))]
    else:
        text = "".join(
            random_character(chance, kind) for _ in range(int(2 ** chance.uniform(0, 9)))
        )
    if chance.random() < 0.1:
        text = "".join(c * int(2 ** chance.uniform(0, 8)) for c in text[:40])
    if chance.random() < 0.15:
        at = chance.randrange(len(text) + 1)
        text = (
            text[:at]
            + chance.choice(["", " "])
            + chance.choice(SPECIALS) * chance.randrange(1, 3)
            + text[at:]
        )
    return "" if chance.random() < 0.05 else text


def make_corpus(chance, path, keys, prose, python_only):
    """`python_only`: what gigatoken reads otherwise than Python and Hugging Face: NaN, lists, equal
    keys, CRLF; combining characters that are newer than the tables by which Hugging Face's NFC
    orders them, which are what bpe-tokenize follows."""

    def text_of():
        text = random_text(chance, prose)
        return (
            text
            if python_only
            else "".join(
                c
                for c in text
                if unicodedata.category(c) != "Cn"
                and (c < "\u0370" or unicodedata.combining(c) == 0)
            )
        )

    with open(path, "wb") as out:
        for number in range(chance.randrange(50, 400)):
            record = {"id": number, "meta": {"a": [1, None, True] + [float("nan")] * python_only}}
            for key in keys:
                record[key] = text_of()
                if python_only and chance.random() < 0.05:
                    record[key] = [text_of() for _ in range(chance.randrange(4))]
            items = list(record.items())
            chance.shuffle(items)
            line = json.dumps(
                dict(items),
                ensure_ascii=chance.random() < 0.5,
                separators=chance.choice([(",", ":"), (", ", ": "), (" ,\t", "  : ")]),
            )
            if python_only and chance.random() < 0.05:
                line = '{"%s":"earlier, does not count",' % keys[0] + line[1:]
            out.write(line.encode() + (chance.choice([b"\n", b"\r\n"]) if python_only else b"\n"))


def folder_with(work, name, tokenizer_json, **config):
    folder = os.path.join(work, name)
    os.mkdir(folder)
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as out:
        out.write(tokenizer_json)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as out:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", **config}, out)
    return folder


def small_tokenizer(text, size, **options):
    """A byte-level BPE learned here, with specials, and a normaliser, pattern and template as
    asked."""
    from tokenizers import (
        Regex,
        Tokenizer,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )

    made = Tokenizer(models.BPE(ignore_merges=options.get("ignore_merges", False)))
    if options.get("nfc"):
        made.normalizer = normalizers.NFC()
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex="pattern" not in options)
    made.pre_tokenizer = (
        pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(options["pattern"]), "isolated"), level]
        )
        if "pattern" in options
        else level
    )
    made.train_from_iterator(
        [text],
        trainers.BpeTrainer(
            vocab_size=size,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
            special_tokens=SPECIALS,
        ),
    )
    made.add_tokens(
        [
            tokenizers.AddedToken("  ", normalized=True),
            tokenizers.AddedToken("naïve", normalized=options.get("nfc", False)),
        ]
        + [tokenizers.AddedToken("word", single_word=True, normalized=False)]
        * options.get("single_word", False)
    )
    if options.get("bos"):
        made.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", made.token_to_id("<s>"))]
        )
    return made.to_str()


def tokenizers_to_try(work, prose):
    """Name, flags for both sides, flags only for ours."""
    pair = [
        "--vocab-file",
        os.path.join(DATA, "gpt2-vocab.json"),
        "--merge-file",
        os.path.join(DATA, "gpt2-merges.txt"),
    ]
    folder = os.path.join(work, "gpt2")  # what the name "gpt2" is on the hub, without the network
    os.mkdir(folder)
    for name, copy in (("gpt2-vocab.json", "vocab.json"), ("gpt2-merges.txt", "merges.txt")):
        shutil.copy(os.path.join(DATA, name), os.path.join(folder, copy))
    json.dump({"model_type": "gpt2"}, open(os.path.join(folder, "config.json"), "w"))
    json.dump(
        {"tokenizer_class": "GPT2Tokenizer"},
        open(os.path.join(folder, "tokenizer_config.json"), "w"),
    )
    megatron_hf_tokenizer.MEGATRON_CONFIG_MAP["GPT2BPETokenizer"]["tokenizer_name"] = folder
    read = lambda name: open(os.path.join(DATA, name), encoding="utf-8").read()
    folders = {
        "gpt2-folder": folder_with(
            work, "hf", read("gpt2-tokenizer.json"), eos_token="<|endoftext|>"
        ),
        "neox": folder_with(
            work, "neox", read("gpt-neox-20b-tokenizer.json"), eos_token="<|endoftext|>"
        ),
        "llama3-like": folder_with(
            work,
            "llama3",
            small_tokenizer(prose, 3000, pattern=LLAMA3, bos=True, ignore_merges=True),
            eos_token="<|endoftext|>",
            bos_token="<s>",
        ),
        "qwen2-like": folder_with(
            work,
            "qwen2",
            small_tokenizer(prose, 70000, pattern=LLAMA3.replace("{1,3}", ""), nfc=True),
            eos_token="<|im_start|>",
        ),
        "gpt2-like": folder_with(
            work, "small", small_tokenizer(prose, 900), eos_token="<|padding|>"
        ),
        "single words": folder_with(
            work, "single", small_tokenizer(prose, 900, single_word=True), eos_token="<s>"
        ),
    }
    tries = [("GPT2BPETokenizer", ["--tokenizer-type", "GPT2BPETokenizer", *pair], [])]
    for name, path in folders.items():
        tries.append(
            (name, ["--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", path], [])
        )
    tries.append(
        (
            "llama3-like without BOS",
            [
                "--tokenizer-type",
                "HuggingFaceTokenizer",
                "--tokenizer-model",
                folders["llama3-like"],
                "--tokenizer-hf-no-include-special-tokens",
            ],
            [],
        )
    )
    return tries, folders


def megatron_arguments(flags):
    arguments = _add_tokenizer_args(argparse.ArgumentParser()).parse_args(flags)
    for name, value in (
        ("rank", 1),
        ("make_vocab_size_divisible_by", 128),
        ("tensor_model_parallel_size", 1),
        ("vocab_extra_ids", 0),
    ):
        setattr(arguments, name, value)
    return arguments


def by_script(tokenizer, path, keys, prefix, append_eod):
    """preprocess_data.py, one process."""
    builders = {
        key: IndexedDatasetBuilder(
            f"{prefix}_{key}_document.bin", dtype=DType.optimal_dtype(tokenizer.vocab_size)
        )
        for key in keys
    }
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            for key in keys:
                sentences = record[key] if isinstance(record[key], list) else [record[key]]
                encoded = [
                    ids
                    for ids in (tokenizer.tokenize(sentence) for sentence in sentences)
                    if len(ids) > 0
                ]
                lengths = [len(ids) for ids in encoded]
                ids = [one for part in encoded for one in part]
                if ids and append_eod:
                    ids.append(tokenizer.eod)
                    lengths[-1] += 1
                builders[key].add_document(ids, lengths)
    for key in keys:
        builders[key].finalize(f"{prefix}_{key}_document.idx")


def by_fast_script(folder, vocab_size, eod, path, keys, prefix, append_eod):
    """preprocess_data_fast.py: gigatoken, one sequence per document, an eod after empty ones
    too."""
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as text:
        tokenizer = gigatoken.Tokenizer.from_json(text.read())
    for key in keys:
        ids = tokenizer.encode_files(gigatoken.JsonlFileSource([path], field=key))
        if append_eod:
            ids = awkward.concatenate(
                [ids, awkward.singletons(awkward.Array(numpy.full(len(ids), eod, numpy.uint32)))],
                axis=1,
            )
        builder = IndexedDatasetBuilder(
            f"{prefix}_{key}_document.bin", dtype=DType.optimal_dtype(vocab_size)
        )
        for one in ids:
            builder.add_item(torch.from_numpy(awkward.to_numpy(one).astype(numpy.int64)))
            builder.end_document()
        builder.finalize(f"{prefix}_{key}_document.idx")


def ours(flags, path, keys, prefix, workers, append_eod):
    command = [
        os.path.join(BIN, "bpe-tokenize"),
        "-q",
        "--input",
        path,
        "--json-keys",
        *keys,
        "--output-prefix",
        prefix,
        "--workers",
        str(workers),
        *flags,
    ] + ["--append-eod"] * append_eod
    subprocess.run(command, check=True)


def compare(name, want, got, keys):
    for key in keys:
        for end in ("bin", "idx"):
            paths = [f"{prefix}_{key}_document.{end}" for prefix in (want, got)]
            bytes_of = [open(path, "rb").read() for path in paths]
            if bytes_of[0] != bytes_of[1]:
                at = next(
                    (i for i, (a, b) in enumerate(zip(*bytes_of)) if a != b),
                    min(map(len, bytes_of)),
                )
                sys.exit(
                    f"{name}: {paths[0]} and {paths[1]} differ at byte {at} of {len(bytes_of[0])} "
                    f"and {len(bytes_of[1])}"
                )


def main():
    chance = random.Random(SEED)
    prose = "".join(
        open(os.path.join(DATA, name), encoding="utf-8").read()[:300000]
        for name in ("shakespeare.txt", "wagahai-ja.txt", "wikitext2-valid.txt")
    )
    print(
        "megatron-core",
        megatron.core.__version__,
        "transformers",
        transformers.__version__,
        "tokenizers",
        tokenizers.__version__,
        "numpy",
        numpy.__version__,
        flush=True,
    )
    with tempfile.TemporaryDirectory() as work:
        tries, folders = tokenizers_to_try(work, prose)
        built = {name: build_tokenizer(megatron_arguments(flags)) for name, flags, _ in tries}
        for round_number in range(ROUNDS):
            keys = chance.sample(["text", "title", "content", "text_zh"], chance.randrange(1, 4))
            path = os.path.join(work, f"in{round_number}.jsonl")
            make_corpus(chance, path, keys, prose, True)
            flat = os.path.join(work, f"flat{round_number}.jsonl")
            make_corpus(chance, flat, keys, prose, False)
            for name, flags, more in tries:
                append_eod = chance.random() < 0.6
                want = os.path.join(work, "want")
                by_script(built[name], path, keys, want, append_eod)
                for workers in (1, 2, 5):
                    got = os.path.join(work, f"got{workers}")
                    ours(
                        ["-f", "--special-tokens-in-text", "parse", *flags, *more],
                        path,
                        keys,
                        got,
                        workers,
                        append_eod,
                    )
                    compare(f"{name}, {workers} workers, round {round_number}", want, got, keys)
            for name, folder in folders.items():
                if name == "single words":  # gigatoken passes over single_word
                    continue
                append_eod = chance.random() < 0.6
                want, got = os.path.join(work, "fast"), os.path.join(work, "gotfast")
                by_fast_script(
                    folder, built[name].vocab_size, built[name].eod, flat, keys, want, append_eod
                )
                ours(
                    [
                        "-f",
                        "--tokenizer-model",
                        folder,
                        "--empty-documents",
                        "one-sequence",
                        "--special-tokens-in-text",
                        "parse",
                    ],
                    flat,
                    keys,
                    got,
                    chance.choice([1, 2, 5]),
                    append_eod,
                )
                compare(
                    f"preprocess_data_fast.py with {name}, round {round_number}", want, got, keys
                )
            print(
                f"round {round_number}: {len(tries)} tokenizers, "
                f"{len(folders) - 1} with gigatoken, keys {keys}: equal with 1, 2 and 5 workers",
                flush=True,
            )


main()
