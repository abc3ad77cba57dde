#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Goldens of tests/tok/sentencepiece_test.cc: ids and texts by sentencepiece, tokenizers,
mistral_common and tiktoken.

    python make_sentencepiece_goldens.py OUT_FOLDER TEXT_FILE...

OUT_FOLDER receives small NAME.model files, a tokenizer.json of four of them, tekken.json and
nemotron.json, and cases.json: what each case loads, and for each text CRC-32s of its ids
(little-endian int32) and of the text that the library decodes them to. Other tokenizer.json files
are patches of the four. Only the first 30,000 characters of each file are used.
"""

import base64
import json
import os
import random
import sys
import tempfile
import zlib

import numpy
import sentencepiece
import tiktoken
import tokenizers
from mistral_common.tokens.tokenizers.tekken import SpecialTokenPolicy, Tekkenizer

import judge_sentencepiece as judge
import sentencepiece_models as made

OUT = sys.argv[1]
SIZE = 1500
# A few rules of NFKC, so that the maps stay small.
RULES = {
    "\u00a0": " ",
    "\u3000": " ",
    "\t": " ",
    "\n": " ",
    "\uff21": "A",
    "\ufb01": "fi",
    "\u00bd": "1\u20442",
    "e\u0301": "\u00e9",
    "\u2126": "\u03a9",
    "\u00ad": "",
    "\ufeff": "",
    "\u200b": " ",
    "\u2003": " ",
    "...": "\u2026",
    "\u30ab\u3099": "\u30ac",
    "\u00a8": " \u0308",
}
EDGES = [
    "",
    " ",
    "  ",
    "a",
    " a",
    "a ",
    "  a  b  ",
    "\u2581",
    "\u2581a",
    " \u2581",
    "\u2581\u2581 ",
    "\n",
    "\n\n a",
    "\t\ta",
    "<s>",
    "</s> x",
    "a<s>b",
    "<unk>",
    "\u00e9",
    "e\u0301",
    "\u00bd",
    "\u3000x\u3000",
    "\uff21\uff22",
    "\U0001f600",
    "\U0001f600\U0001f601 ",
    "a\u0000b",
    "<0x0A>",
    "\u00ad",
    "\u00ad ",
    "in text",
    " in text",
    "wordy",
    "wordywordy",
    "a" * 40,
    " " * 40,
    "the" * 30,
    "\u732b" * 20,
    "x \u732b\u304c y",
    "1234567",
    "don't",
    "...",
    "a...b",
    "ABC\uff21 a b",
    "<|user|> hi",
    "two words",
    "two wordsx",
    "<table>\n\n\n</table>",
    "Hello   world!\n\nNext.",
]


def crc(ids):
    return f"{zlib.crc32(numpy.array(ids, numpy.int32).tobytes()):08x}"


def text_crc(text):
    return f"{zlib.crc32(text.encode()):08x}"


def case(cases, name, entry, encode, decode):
    ids = [encode(text) for text in TEXTS]
    cases[name] = dict(entry, ids=[crc(i) for i in ids], text=[text_crc(decode(i)) for i in ids])


def main():
    os.makedirs(OUT, exist_ok=True)
    work = tempfile.mkdtemp()
    texts = []
    for i, path in enumerate(sys.argv[2:]):
        texts.append(os.path.join(work, f"{i}.txt"))
        open(texts[-1], "w").write(open(path, encoding="utf-8").read()[:30000])
    rules = os.path.join(work, "rules.tsv")
    with open(rules, "w") as out:
        for source, target in RULES.items():
            out.write(
                " ".join(f"{ord(c):X}" for c in source)
                + "\t"
                + " ".join(f"{ord(c):X}" for c in target)
                + "\n"
            )
    for name, options in made.MODELS.items():
        options = made.MODELS[name] = dict(options, character_coverage=0.98)
        if options.get("normalization_rule_name", "") != "identity":
            del options["normalization_rule_name"]
            options["normalization_rule_tsv"] = rules
        made.train_model(name, texts, OUT, SIZE)
    chance = random.Random(7)
    real = open(texts[-1], encoding="utf-8").read()
    global TEXTS
    TEXTS = EDGES + [judge.random_text(chance, real)[:600] for _ in range(250)]
    cases = {}
    for name in made.MODELS:
        library = sentencepiece.SentencePieceProcessor(
            model_file=os.path.join(OUT, name + ".model")
        )
        case(cases, name, {"file": name + ".model"}, library.encode, library.decode)
    trees = {name: made.tokenizer_json(name, OUT) for name in made.JSONS}
    bases = {"llama": "llama2", "gemma": "gemma1", "nfkc": "unknown", "inner_blanks": "inner"}
    for file, name in bases.items():
        json.dump(
            trees[name], open(os.path.join(OUT, file + ".json"), "w"), ensure_ascii=False, indent=0
        )
    for name, tree in trees.items():
        model = made.JSONS[name][0]
        if model not in bases:
            continue
        base = trees[bases[model]]
        patch = {key: value for key, value in tree.items() if value != base[key]}
        if "model" in patch:
            patch["model"] = {
                key: value for key, value in tree["model"].items() if value != base["model"][key]
            }
        path = os.path.join(work, "tokenizer.json")
        json.dump(tree, open(path, "w"))
        library = tokenizers.Tokenizer.from_file(path)
        entry = {"file": model + ".json", "patch": patch}
        case(
            cases,
            name,
            dict(entry, parse=True),
            lambda text: library.encode(text).ids,
            lambda ids: library.decode(ids, skip_special_tokens=False),
        )
        library.encode_special_tokens = True
        case(
            cases,
            name + " as text",
            entry,
            lambda text: library.encode(text, add_special_tokens=False).ids,
            lambda ids: library.decode(ids, skip_special_tokens=False),
        )
    ranks = made.byte_ranks(texts, SIZE)
    json.dump(
        made.tekken(ranks, "v11", True), open(os.path.join(OUT, "tekken.json"), "w"), indent=0
    )
    library = Tekkenizer.from_file(os.path.join(OUT, "tekken.json"))
    case(
        cases,
        "tekken",
        {"file": "tekken.json"},
        lambda text: library.encode(text, bos=False, eos=False),
        lambda ids: library.decode(ids, SpecialTokenPolicy.KEEP),
    )
    json.dump(made.token_list(ranks), open(os.path.join(OUT, "nemotron.json"), "w"), indent=0)
    size, special = len(ranks) + 50, 100
    ranks = {token: i + special for i, token in enumerate(ranks[: size - special])}
    for version, pattern in (("v1", made.NEMOTRON), ("v2", made.TEKKEN)):
        library = tiktoken.Encoding(
            "nemotron", pat_str=pattern, mergeable_ranks=ranks, special_tokens={}
        )
        case(
            cases,
            "nemotron " + version,
            {"file": "nemotron.json", "pattern": version, "vocab_size": size, "special": special},
            library.encode_ordinary,
            library.decode,
        )
    versions = {
        "sentencepiece": sentencepiece.__version__,
        "tokenizers": tokenizers.__version__,
        "tiktoken": tiktoken.__version__,
    }
    json.dump(
        {"versions": versions, "texts": TEXTS, "cases": cases},
        open(os.path.join(OUT, "cases.json"), "w"),
        indent=0,
    )


if __name__ == "__main__":
    main()
