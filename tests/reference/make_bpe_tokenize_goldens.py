#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes tests/golden/tools: a small corpus and vocabulary, and the digests of the datasets that
Megatron makes from them.

megatron-core ships the writer of the format but not tools/preprocess_data.py, so the script's rules
for one line are repeated here; ids come from Hugging Face tokenizers and tiktoken, files from
megatron-core's own IndexedDatasetBuilder.
    python make_bpe_tokenize_goldens.py SHARED_DATA_FOLDER
"""

import base64
import gzip
import hashlib
import importlib.metadata
import json
import os
import random
import sys
import tempfile

import numpy
import tiktoken
import tokenizers
import torch
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "..", "golden", "tools")
SHARED = sys.argv[1]
EOD = "<|endoftext|>"


def corpus():
    """Lines with everything that a line may contain and a tool may get wrong. Bytes, because some
    of it is not json.dumps's form."""
    chance = random.Random(20)
    words = (
        "the of and to in a was is for on as by with he that at from his it an were which are this "
        "be or had "
        "tokenizer Ünïcödé été naïve straße мир слово 東京 日本語 한국어 العربية עברית हिन्दी ไทย 😀 👩‍👩‍👧 "
        "don't I'm we've 3.14159 1,000,000 x=y+z; {} [] <|endoftext|> \t \n \r\n"
        " \u00a0 \u3000 \u200b e\u0301"
    ).split(" ")
    lines = []

    def add(text, **more):
        record = {"text": text, "title": more.pop("title", "t%d" % len(lines)), **more}
        lines.append(json.dumps(record, ensure_ascii=chance.random() < 0.5).encode("utf-8"))

    for _ in range(1500):
        add(" ".join(chance.choice(words) for _ in range(chance.randrange(60))))
    add("")
    add([])
    add(["one sentence.", "", "another", "<|endoftext|>"])
    add("a" * 70000)
    add(" " * 5000 + "\n" * 300)
    add("\u0000\u0001\u007f\u0080\ufffe\U0010ffff")
    for _ in range(400):
        add(
            "".join(
                chr(
                    chance.choice(
                        [
                            chance.randrange(0x20, 0x250),
                            chance.randrange(0x3000, 0x9FFF),
                            chance.randrange(0x1F300, 0x1F700),
                        ]
                    )
                )
                for _ in range(chance.randrange(80))
            )
        )
    lines += [
        b'{"text": "first", "text": "last one counts", "title": ""}',
        b'{"title":"x","other":"\\ud800","text":"lone surrogate elsewhere"}',
        b'{"title":"x","n":[NaN, Infinity, -Infinity, 1e999, '
        b'123456789012345678901234567890],"text":"odd numbers"}',
        b'  {"text":"\\u00e9\\ud83d\\ude00\\/\\b\\f","title":"escapes"}  ',
    ]
    ends = [b"\n", b"\r\n"]
    return b"".join(line + chance.choice(ends) for line in lines[:-1]) + lines[-1]


def train(path):
    """A byte-level BPE of 1,200 tokens, saved as GPT-2's pair of files."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    texts = [json.loads(line)["text"] for line in open(path, encoding="utf-8")]
    trainer = trainers.BpeTrainer(
        vocab_size=1199, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator((t for t in texts if isinstance(t, str)), trainer)
    tokenizer.model.save(GOLDEN)
    vocab = json.load(open(os.path.join(GOLDEN, "vocab.json"), encoding="utf-8"))
    vocab[EOD] = len(vocab)
    with open(os.path.join(GOLDEN, "vocab.json"), "w", encoding="utf-8") as out:
        json.dump(vocab, out, ensure_ascii=False)


class Pair:
    """GPT-2's two files; special tokens in the text stay text unless `parse`."""

    def __init__(self, vocab, merges, parse=False):
        self.tokenizer = Tokenizer(models.BPE.from_file(vocab, merges))
        self.tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        if parse:
            self.tokenizer.add_special_tokens([EOD])
        ids = json.load(open(vocab, encoding="utf-8"))
        self.eod, self.vocab_size = ids[EOD], len(ids)

    def encode(self, text):
        return self.tokenizer.encode(text).ids


class TokenizerJson:
    def __init__(self, path, parse):
        self.tokenizer = Tokenizer.from_file(path)
        self.tokenizer.encode_special_tokens = not parse
        self.eod, self.vocab_size = self.tokenizer.token_to_id(EOD), self.tokenizer.get_vocab_size()

    def encode(self, text):
        return self.tokenizer.encode(text).ids


class Cl100k:
    def __init__(self, path):
        lines = gzip.open(path).read().split(b"\n")
        ranks = {base64.b64decode(t): int(r) for t, r in (line.split() for line in lines if line)}
        pattern = (
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
            r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
        )
        special = {
            EOD: 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        }
        self.encoding = tiktoken.Encoding(
            "cl100k_base", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special
        )
        self.eod, self.vocab_size = 100257, self.encoding.n_vocab

    def encode(self, text):
        return self.encoding.encode_ordinary(text)


def dataset(path, key, tokenizer, eod, like_fast=False):
    """The digests of .bin and .idx: what preprocess_data.py (or _fast) does with each line."""
    dtype = numpy.uint16 if tokenizer.vocab_size < 65500 else numpy.int32
    with tempfile.TemporaryDirectory() as folder:
        prefix = os.path.join(folder, "x")
        builder = IndexedDatasetBuilder(prefix + ".bin", dtype=dtype)
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                value = json.loads(line)[key]
                ids, lengths = [], []
                for sentence in value if isinstance(value, list) else [value]:
                    found = tokenizer.encode(sentence)
                    if found:
                        ids += found
                        lengths.append(len(found))
                if like_fast and not lengths:
                    lengths.append(0)
                if eod and lengths:
                    ids.append(tokenizer.eod)
                    lengths[-1] += 1
                builder.add_document(torch.IntTensor(ids), lengths)
        builder.finalize(prefix + ".idx")
        return [
            hashlib.sha256(open(prefix + end, "rb").read()).hexdigest() for end in (".bin", ".idx")
        ]


def main():
    os.makedirs(GOLDEN, exist_ok=True)
    small = os.path.join(GOLDEN, "corpus.jsonl")
    with open(small, "wb") as out:
        out.write(corpus())
    train(small)
    pair = [os.path.join(GOLDEN, name) for name in ("vocab.json", "merges.txt")]
    gpt2 = [os.path.join(SHARED, name) for name in ("gpt2-vocab.json", "gpt2-merges.txt")]
    enwiki = os.path.join(SHARED, "enwiki-sample.jsonl")
    neox = os.path.join(SHARED, "gpt-neox-20b-tokenizer.json")
    cl100k = os.path.join(SHARED, "cl100k_base.tiktoken.gz")
    golden_pair = "--vocab-file @GOLDEN/tools/vocab.json --merge-file @GOLDEN/tools/merges.txt"
    gpt2_pair = (
        "--vocab-file @SHARED/gpt2-vocab.json --merge-file @SHARED/gpt2-merges.txt "
        "--tokenizer-type GPT2BPETokenizer"
    )
    gpt2_json = (
        "--tokenizer-model @SHARED/gpt2-tokenizer.json --tokenizer-type HuggingFaceTokenizer"
    )
    neox_json = "--vocab-file @SHARED/gpt-neox-20b-tokenizer.json --tokenizer-type HFTokenizer"
    tiktoken_file = (
        "--tokenizer-model @SHARED/cl100k_base.tiktoken.gz --tokenizer-type TikTokenizer"
    )
    parse = " --special-tokens-in-text parse"
    text = " --special-tokens-in-text text"  # where the type says parse
    fast = " --empty-documents one-sequence"
    eod = " --append-eod"
    cases = [
        ("small", golden_pair, small, "text", Pair(*pair), False, False),
        ("small_eod", golden_pair + eod, small, "text", Pair(*pair), True, False),
        ("small_title", golden_pair + eod, small, "title", Pair(*pair), True, False),
        (
            "small_parse",
            golden_pair + eod + parse,
            small,
            "text",
            Pair(*pair, parse=True),
            True,
            False,
        ),
        ("small_fast", golden_pair + fast, small, "text", Pair(*pair), False, True),
        ("small_fast_eod", golden_pair + eod + fast, small, "text", Pair(*pair), True, True),
        ("shared_small_gpt2", gpt2_pair + eod, small, "text", Pair(*gpt2), True, False),
        (
            "shared_small_gpt2_parse",
            gpt2_json + eod,
            small,
            "text",
            TokenizerJson(os.path.join(SHARED, "gpt2-tokenizer.json"), True),
            True,
            False,
        ),
        (
            "shared_small_neox",
            neox_json + eod + text,
            small,
            "text",
            TokenizerJson(neox, False),
            True,
            False,
        ),
        (
            "shared_small_neox_parse",
            neox_json + eod,
            small,
            "text",
            TokenizerJson(neox, True),
            True,
            False,
        ),
        ("shared_small_cl100k", tiktoken_file + eod, small, "text", Cl100k(cl100k), True, False),
        ("shared_enwiki_gpt2", gpt2_pair + eod, enwiki, "text", Pair(*gpt2), True, False),
        ("shared_enwiki_gpt2_title", gpt2_pair, enwiki, "title", Pair(*gpt2), False, False),
        (
            "shared_enwiki_gpt2_fast",
            gpt2_pair + eod + fast,
            enwiki,
            "text",
            Pair(*gpt2),
            True,
            True,
        ),
        (
            "shared_enwiki_neox",
            neox_json + eod + text,
            enwiki,
            "text",
            TokenizerJson(neox, False),
            True,
            False,
        ),
        ("shared_enwiki_cl100k", tiktoken_file + eod, enwiki, "text", Cl100k(cl100k), True, False),
    ]
    versions = ", ".join(
        "%s %s" % (name, importlib.metadata.version(name))
        for name in ("megatron-core", "tokenizers", "tiktoken", "numpy")
    )
    with open(os.path.join(GOLDEN, "bpe_tokenize.tsv"), "w", encoding="utf-8") as out:
        out.write("# made by tests/reference/make_bpe_tokenize_goldens.py with %s\n" % versions)
        out.write("# name, input, key, flags, sha256 of .bin, sha256 of .idx\n")
        for name, flags, path, key, tokenizer, with_eod, like_fast in cases:
            place = (
                "@SHARED/enwiki-sample.jsonl" if path == enwiki else "@GOLDEN/tools/corpus.jsonl"
            )
            out.write(
                "\t".join(
                    [name, place, key, flags] + dataset(path, key, tokenizer, with_eod, like_fast)
                )
                + "\n"
            )


main()
