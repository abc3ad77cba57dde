#!/usr/bin/env python3
"""Goldens of tests/tok/golden_test.cc: ids by the real Hugging Face tokenizers and tiktoken.

usage: make_tok_goldens.py DATA_DIR OUT_DIR [CASE...]

DATA_DIR holds gpt2-vocab.json, gpt2-merges.txt, gpt2-tokenizer.json, gpt-neox-20b-tokenizer.json,
cl100k_base.tiktoken.gz and sample texts. OUT_DIR receives base.json (a small vocabulary, made
once), cases.json (what each case loads and, for each set of texts, checksums of the ids) and
vectors.json (texts, and for the published vocabularies their ids). Texts are made by the rules
below, which golden_test.cc follows; a checksum is the CRC-32 of, for each text, the number of ids
and the ids, as little-endian int32. Texts at which the reference panics (overlapping added tokens
in text that NFC changed) are listed and left out.
SPDX-License-Identifier: MIT
"""

import base64, gzip, hashlib, itertools, json, os, struct, sys, zlib

import numpy as np
import tiktoken
import tokenizers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

DATA, OUT = sys.argv[1], sys.argv[2]
ONLY = sys.argv[3:]

CONTEXTS = [(" ", ""), ("", "'s"), ("", None), ("\n", ""), ("1", ""), ("", "1"), ("a ", " b")]
ALPHABET = list("asS' \n\r\t1!") + ["\u00a0", "\u0660", "\u0301", "\u6f22"]
BLOCK = 4096
FILES = ["shakespeare.txt", "wagahai-ja.txt", "wikitext2-valid.txt", "enwiki-sample.jsonl"]

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
TEKKEN = O200K.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace(r"\p{N}{1,3}", r"\p{N}")
DEEPSEEK = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def byte_level(prefix=False, regex=True):
    return {
        "type": "ByteLevel",
        "add_prefix_space": prefix,
        "trim_offsets": True,
        "use_regex": regex,
    }


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def added(content, **flags):
    token = {
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": False,
    }
    token.update(flags)
    return token


TORTURE = [
    added("<s>", special=True),
    added("</s>", special=True, lstrip=True),
    added("<mask>", special=True, lstrip=True, rstrip=True),
    added("word", single_word=True),
    added("wordy"),
    added("<s", rstrip=True),
    added("  ", normalized=True),
    added("    ", normalized=True),
    added("e\u0301x", normalized=True),
    added("\u00e9", normalized=True, single_word=True),
    added("\U0001f600", rstrip=True),
    added("\u212b", normalized=False),
    added("<|endoftext|>", special=True, normalized=True),
    added("<|endoftext|><|endoftext|>", special=True, normalized=True, rstrip=True),
    added("abcef"),
    added("bc"),
    added("bcx", lstrip=True),
    added("ced"),
    added("\n\n", lstrip=True),
]
TEMPLATE = {
    "type": "Sequence",
    "processors": [
        byte_level(),
        {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "</s>", "type_id": 0}},
            ],
            "pair": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {
                "<s>": {"id": "<s>", "ids": ["@<s>"], "tokens": ["<s>"]},
                "</s>": {"id": "</s>", "ids": ["@</s>"], "tokens": ["</s>"]},
            },
        },
    ],
}

# Each case: the base file, a JSON merge patch for it, and rewrites: `added` puts tokens with the
# next ids, `permute` makes ids that are not ranks, `drop_bytes` takes bytes out of the vocabulary,
# `unreachable` adds vocabulary entries without merges, `pairs` writes merges as pairs, `reverse`
# ranks long merges first, so that merges enable merges of lower rank, `again` lists a merge a
# second time at the end.
CASES = {
    "gpt2": {"base": "gpt2-tokenizer.json", "full": True},
    "gpt2-files": {"files": ["gpt2-vocab.json", "gpt2-merges.txt"]},
    "neox": {"base": "gpt-neox-20b-tokenizer.json", "full": True},
    "cl100k": {"tiktoken": "cl100k_base", "full": True},
    "r50k": {"tiktoken": "r50k_base"},
    "small-gpt2": {"base": "base.json", "patch": {"pre_tokenizer": byte_level()}, "pairs": True},
    "small-split-gpt2": {
        "base": "base.json",
        "patch": {"pre_tokenizer": sequence(split(GPT2), byte_level(regex=False))},
    },
    "small-prefix": {
        "base": "base.json",
        "patch": {"pre_tokenizer": byte_level(prefix=True)},
        "added": TORTURE,
    },
    "small-permuted": {"base": "base.json", "patch": {"pre_tokenizer": byte_level()}, "permute": 7},
    "small-again": {"base": "base.json", "patch": {"pre_tokenizer": byte_level()}, "again": True},
    "small-reversed": {
        "base": "base.json",
        "patch": {"pre_tokenizer": byte_level()},
        "reverse": True,
    },
    "small-llama3": {
        "base": "base.json",
        "unreachable": True,
        "added": TORTURE,
        "patch": {
            "model": {"ignore_merges": True},
            "post_processor": TEMPLATE,
            "pre_tokenizer": sequence(split(LLAMA3), byte_level(regex=False)),
        },
    },
    "small-unreachable": {
        "base": "base.json",
        "unreachable": True,
        "patch": {"pre_tokenizer": byte_level()},
    },
    "small-removed": {
        "base": "base.json",
        "patch": {
            "pre_tokenizer": sequence(split(LLAMA3, "Removed", True), byte_level(regex=False))
        },
    },
    "small-qwen2": {
        "base": "base.json",
        "added": TORTURE,
        "patch": {
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": sequence(split(QWEN2), byte_level(regex=False)),
        },
    },
    "small-qwen35": {
        "base": "base.json",
        "patch": {
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": sequence(split(QWEN35), byte_level(regex=False)),
        },
    },
    "small-starcoder": {
        "base": "base.json",
        "patch": {
            "pre_tokenizer": sequence({"type": "Digits", "individual_digits": True}, byte_level())
        },
    },
    "small-digit-runs": {
        "base": "base.json",
        "patch": {
            "pre_tokenizer": sequence({"type": "Digits", "individual_digits": False}, byte_level())
        },
    },
    "small-deepseek": {
        "base": "base.json",
        "patch": {
            "pre_tokenizer": sequence(
                split(r"\p{N}{1,3}"),
                split("[一-龥぀-ゟ゠-ヿ]+"),
                split(DEEPSEEK),
                byte_level(regex=False),
            )
        },
    },
    "small-o200k": {
        "base": "base.json",
        "patch": {"pre_tokenizer": sequence(split(O200K), byte_level(regex=False))},
    },
    "small-tekken": {
        "base": "base.json",
        "patch": {"pre_tokenizer": sequence(split(TEKKEN), byte_level(regex=False))},
    },
    "small-whole": {"base": "base.json", "patch": {"pre_tokenizer": byte_level(regex=False)}},
    "small-nfkc": {
        "base": "base.json",
        "added": TORTURE,
        "patch": {
            "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "NFKC"}]},
            "pre_tokenizer": byte_level(),
        },
    },
    "small-nfkd": {
        "base": "base.json",
        "patch": {"normalizer": {"type": "NFKD"}, "pre_tokenizer": byte_level()},
    },
    "small-dropped": {
        "base": "base.json",
        "drop_bytes": [97, 0xCC, 0x81, 0xE6],
        "patch": {"pre_tokenizer": byte_level()},
    },
    "small-unk": {
        "base": "base.json",
        "drop_bytes": [97, 0xCC, 0x81, 0xE6],
        "patch": {"model": {"unk_token": "!"}, "pre_tokenizer": byte_level()},
    },
    "small-fused-unk": {
        "base": "base.json",
        "drop_bytes": [97, 0xCC, 0x81, 0xE6],
        "patch": {"model": {"unk_token": "!", "fuse_unk": True}, "pre_tokenizer": byte_level()},
    },
}

ADVERSARIAL = [
    "",
    "a\n\n  b",
    "a\n \n",
    "   ",
    "  x",
    "\t\tx",
    " \u00a0x",
    "\u3000\u3000x",
    "a\r\n\r\nb",
    "\r\n \r\nx",
    "don't DON'T",
    "''s '",
    "\u2019s",
    "x\0\0y",
    "\x7f\x80",
    " \x850",
    "\u200b\u200bx",
    "\ufeffx",
    "e\u0301 \u00e9",
    "\u1112\u1161\u11ab",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0001f1eb\U0001f1f7",
    "\u0669\u0660 \u00bd \u2167",
    "1234567890",
    "\u0378\uffff",
    "'\u017f",
    "'ſt 'LL",
    "\U000323b0's",
    "\u088f's",
    "0",
    "00",
    "0000",
    "0" * 8,
    "0" * 16,
    "0" * 17,
    " " * 4 + "x",
    " " * 25 + "x",
    " " * 26 + "x",
    "a\n    b",
    "a\n\n\t  b",
    "<|endoftext|>",
    "a<|endoftext|>b <|endoftext|><|endoftext|> c",
    "<|endof<|endoftext|>",
    "edilmektedir",
    " g\u00f6stermektedir",
    "kullan\u0131lmaktad\u0131r",
    "e\u0301x e\u0301",
    "\u212b A\u030a \u00c5",
    "\uac00\u11a8 \u1100\u1161\u11a8",
    "\u0344 \u0958 \ufb1d",
    "q\u0323\u0307 q\u0307\u0323",
    "\u09fe\u0301",
    "a\u08d4\u0301",
    "a\u0898\u0301\u0316",
    "\U00011938 \U00011935\U00011930",
    "<s>hello</s>  <mask>  world <s",
    "word words wordy sword word",
    "abcef abcex abced bcx  bcx",
    "a\n\nb  \n\n c",
    "\U0001f600  x",
    "123\u0664\u066556",
    "x" * 127,
    "https://example.org/a_b?c=d&e=%20",
    "\u0e44\u0e17\u0e22",
] + [
    c * n
    for c in ("a", "x", "-", "_", " ", "\n", "'s", "\u6f22", "=")
    for n in (15, 16, 31, 32, 63, 64, 65, 255, 999)
]


class Random:
    """xorshift64*, as in golden_test.cc."""

    def __init__(self, seed):
        self.state = seed

    def next(self, limit):
        x = self.state
        x ^= x >> 12
        x ^= (x << 25) & 0xFFFFFFFFFFFFFFFF
        x ^= x >> 27
        self.state = x
        return ((x * 0x2545F4914F6CDD1D & 0xFFFFFFFFFFFFFFFF) >> 33) % limit


SNIPPETS = [
    "<s>",
    "</s>",
    "<mask>",
    "word",
    "wordy",
    "<|endoftext|>",
    "e\u0301x",
    "abcef",
    "bcx",
    "\n\n",
    "    ",
    "  ",
    "the ",
    " of",
    "'s",
    "'LL",
    "\r\n",
    "\u3000",
    "\u00a0",
    "ation",
    "\U0001f600",
    "0123",
]


def random_texts(seed, count):
    random = Random(seed)
    texts = []
    for _ in range(count):
        text = []
        for _ in range(random.next(60)):
            kind = random.next(8)
            if kind == 0:
                text.append(SNIPPETS[random.next(len(SNIPPETS))])
            elif kind == 1:
                text.append(chr(random.next(0xD800)))
            elif kind == 2:
                text.append(chr(0xE000 + random.next(0x110000 - 0xE000)))
            elif kind == 3:
                text.append(chr(0x300 + random.next(0x70)))
            elif kind == 4:
                text.append(ALPHABET[random.next(len(ALPHABET))])
            else:
                text.append(chr(32 + random.next(95)))
        texts.append("".join(text))
    return texts


def code_points(first, full):
    """Scalar values of a block; outside planes 0 and 1 every 64th unless `full`."""
    step = 1 if full or first < 0x20000 or first == 0xE0000 else 64
    return [c for c in range(first, first + BLOCK, step) if not 0xD800 <= c < 0xE000]


def joined_contexts(points, context):
    """One text for each 256 code points: each in its context, on a line of its own."""
    before, after = context
    chunks = [points[i : i + 256] for i in range(0, len(points), 256)]
    return [
        "".join(before + chr(c) + (chr(c) if after is None else after) + "\n" for c in chunk)
        for chunk in chunks
    ]


def short_strings(longest):
    for length in range(1, longest + 1):
        for symbols in itertools.product(ALPHABET, repeat=length):
            yield "".join(symbols)


def crc(lists):
    parts = []
    for ids in lists:
        if ids is None:
            continue
        parts.append(struct.pack("<i", len(ids)))
        parts.append(np.asarray(ids, dtype="<i4").tobytes())
    return "%08x" % zlib.crc32(b"".join(parts))


class HuggingFace:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def batch(self, texts, parse=False, template=False):
        """Ids of each text; None for a text at which the reference itself panics."""
        self.tokenizer.encode_special_tokens = not parse
        try:
            return [
                e.ids for e in self.tokenizer.encode_batch_fast(texts, add_special_tokens=template)
            ]
        except BaseException as error:
            if "bad split" not in str(error):
                raise
        ids = []
        for text in texts:
            try:
                ids.append(self.tokenizer.encode(text, add_special_tokens=template).ids)
            except BaseException:
                ids.append(None)
        return ids


class Tiktoken:
    def __init__(self, encoding):
        self.encoding = encoding

    def batch(self, texts, parse=False, template=False):
        if parse:
            return [self.encoding.encode(t, allowed_special="all") for t in texts]
        return [self.encoding.encode_ordinary(t) for t in texts]


def read(name):
    path = os.path.join(OUT if name == "base.json" else DATA, name)
    with open(path, encoding="utf-8") as file:
        return file.read()


def merge_patch(target, patch):
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = merge_patch(target.get(key), value)
    return target


def rewrite(spec):
    """The tokenizer.json text of a case."""
    root = merge_patch(json.loads(read(spec["base"])), spec.get("patch", {}))
    vocab, merges = root["model"]["vocab"], root["model"]["merges"]
    if spec.get("drop_bytes"):
        alphabet = bytes_to_unicode()
        dropped = {alphabet[b] for b in spec["drop_bytes"]}
        merges[:] = [m for m in merges if not dropped & set(m)]
        for token in [t for t in vocab if dropped & set(t)]:
            del vocab[token]
    if spec.get("unreachable"):
        for token in ["Ġtheoremata", "edilmektedir", "xyzzy", "qqqq", "Ġthethe", "ĠThe'"]:
            vocab.setdefault(token, max(vocab.values()) + 1)
    if spec.get("permute"):
        size = max(vocab.values()) + 1
        for token in vocab:
            vocab[token] = size - 1 - vocab[token]
    if spec.get("reverse"):
        merges.reverse()
    if spec.get("again"):
        merges.append(merges[0])
        merges.append(merges[10])
    if spec.get("pairs"):
        root["model"]["merges"] = [m.split(" ") for m in merges]
    next_id = max(len(vocab), max(vocab.values()) + 1)
    assert not spec.get("added") or next_id == len(vocab)
    root["added_tokens"] = [] if spec["base"] == "base.json" else root["added_tokens"]
    for token in spec.get("added", []):
        token = dict(token)
        token["id"] = vocab.get(token["content"], next_id)
        next_id += token["content"] not in vocab
        root["added_tokens"].append(token)
    text = json.dumps(root, ensure_ascii=False)
    for token in root["added_tokens"]:
        text = text.replace('"@%s"' % token["content"], str(token["id"]))
    return text


def bytes_to_unicode():
    own = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    rest = [b for b in range(256) if b not in own]
    table = {b: chr(b) for b in own}
    table.update({b: chr(256 + i) for i, b in enumerate(rest)})
    return table


def load(spec):
    if "tiktoken" in spec:
        if spec["tiktoken"] == "cl100k_base":
            lines = gzip.open(os.path.join(DATA, "cl100k_base.tiktoken.gz")).read().split(b"\n")
            ranks = {base64.b64decode(l.split()[0]): int(l.split()[1]) for l in lines if l}
            special = {
                "<|endoftext|>": 100257,
                "<|fim_prefix|>": 100258,
                "<|fim_middle|>": 100259,
                "<|fim_suffix|>": 100260,
                "<|endofprompt|>": 100276,
            }
            return Tiktoken(
                tiktoken.Encoding(
                    "cl100k", pat_str=CL100K, mergeable_ranks=ranks, special_tokens=special
                )
            )
        byte_of = {c: b for b, c in bytes_to_unicode().items()}
        vocab = json.loads(read("gpt2-vocab.json"))
        ranks = {bytes(byte_of[c] for c in t): i for t, i in vocab.items() if t != "<|endoftext|>"}
        return Tiktoken(
            tiktoken.Encoding(
                "r50k", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256}
            )
        )
    if "files" in spec:
        model = models.BPE.from_file(*[os.path.join(DATA, f) for f in spec["files"]])
        tokenizer = Tokenizer(model)
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.add_special_tokens(["<|endoftext|>"])
        return HuggingFace(tokenizer)
    return HuggingFace(Tokenizer.from_str(rewrite(spec)))


def make_case(name, spec):
    tokenizer = load(spec)
    full = spec.get("full", False)
    sums = {"alone": [], "contexts": []}
    for first in range(0, 0x110000, BLOCK):
        points = code_points(first, full)
        sums["alone"].append(crc(tokenizer.batch([chr(c) for c in points])))
        sums["contexts"].append(
            [crc(tokenizer.batch(joined_contexts(points, c))) for c in CONTEXTS]
        )
    strings = short_strings(5 if full else 4)
    sums["short"] = []
    while chunk := list(itertools.islice(strings, 50000)):
        sums["short"].append(crc(tokenizer.batch(chunk)))
    texts = random_texts(0x9E3779B97F4A7C15, 4000)
    lists = {
        "random": tokenizer.batch(texts),
        "random_parse": tokenizer.batch(texts, parse=True),
        "random_template": tokenizer.batch(texts[:100], template=True),
    }
    sums["panics"] = {}
    for key, ids in lists.items():
        sums[key] = [crc(ids[i : i + 100]) for i in range(0, len(ids), 100)]
        if panics := [i for i, list_ in enumerate(ids) if list_ is None]:
            sums["panics"][key] = panics
    sums["files"] = {}
    for file in FILES:
        if name.startswith("small-") and file == "enwiki-sample.jsonl":
            continue
        with open(os.path.join(DATA, file), encoding="utf-8", newline="") as handle:
            text = handle.read()
        ids = tokenizer.batch([text])[0]
        lines = tokenizer.batch(text.split("\n"), parse=True)
        sums["files"][file] = [len(ids), crc([ids]), crc(lines)]
    vectors = {
        "text": tokenizer.batch(ADVERSARIAL),
        "parse": tokenizer.batch(ADVERSARIAL, parse=True),
    }
    sums["adversarial"] = {key: [crc([ids]) for ids in lists] for key, lists in vectors.items()}
    return sums, vectors


def make_base():
    """A vocabulary of 3,000 tokens over several scripts, without any pre-tokenizer's habits."""
    path = os.path.join(OUT, "base.json")
    if os.path.exists(path):
        return
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(r".{1,24}|\s{1,12}"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=3000,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    with open(os.path.join(DATA, "wagahai-ja.txt"), encoding="utf-8", newline="") as file:
        japanese = file.read()[:60000]
    with open(os.path.join(DATA, "wikitext2-valid.txt"), encoding="utf-8", newline="") as file:
        english = file.read()[:200000]
    spaces = [
        "a\n\n\n    b\r\n\r\n\t\tc        d----====____!!!!....'s'LL 1234567890 0000 2026" * 40
    ]
    tokenizer.train_from_iterator([japanese, english] + spaces + random_texts(7, 2000), trainer)
    root = json.loads(tokenizer.to_str())
    root["model"]["merges"] = [" ".join(m) for m in root["model"]["merges"]]
    # Ids ascend with ranks: bytes first, then merges in order.
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    for merge in root["model"]["merges"]:
        vocab.setdefault(merge.replace(" ", ""), len(vocab))
    root["model"]["vocab"] = vocab
    with open(path, "w", encoding="utf-8") as file:
        json.dump(root, file, ensure_ascii=False)


def main():
    make_base()
    paths = [os.path.join(OUT, n) for n in ("cases.json", "vectors.json")]
    cases = json.load(open(paths[0])) if os.path.exists(paths[0]) else {}
    vectors = json.load(open(paths[1])) if os.path.exists(paths[1]) else {}
    cases["versions"] = {
        "tokenizers": tokenizers.__version__,
        "tiktoken": tiktoken.__version__,
        "python": sys.version.split()[0],
    }
    vectors["texts"] = ADVERSARIAL
    for name, spec in CASES.items():
        if ONLY and name not in ONLY:
            continue
        print(name, file=sys.stderr, flush=True)
        sums, ids = make_case(name, spec)
        entry = {"full": spec.get("full", False), "sums": sums}
        for key in ("files", "tiktoken", "base"):
            if key in spec:
                entry[key] = spec[key]
        # The rewritten parts of tokenizer.json; a vocabulary only where it differs from base.json.
        if spec.get("base") == "base.json":
            entry["patch"] = case_patch(spec)
        cases[name] = entry
        if spec.get("full"):
            vectors[name] = ids["text"]
        for path, content in zip(paths, (cases, vectors)):
            lines = [
                json.dumps(k) + ":" + json.dumps(v, separators=(",", ":"))
                for k, v in content.items()
            ]
            with open(path, "w", encoding="utf-8") as file:
                file.write("{\n" + ",\n".join(lines) + "\n}\n")


def case_patch(spec):
    """What turns base.json into the case's file, in a form that golden_test.cc applies."""
    base, root = json.loads(read("base.json")), json.loads(rewrite(spec))
    patch = {k: v for k, v in root.items() if k != "model" and v != base.get(k)}
    steps = {
        k: spec[k]
        for k in ("drop_bytes", "unreachable", "permute", "reverse", "again", "pairs")
        if k in spec
    }
    model = {
        k: v
        for k, v in root["model"].items()
        if k not in ("vocab", "merges") and v != base["model"].get(k)
    }
    return {"members": patch, "model": model, "steps": steps}


if __name__ == "__main__":
    main()
