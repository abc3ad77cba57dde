#!/usr/bin/env python3
"""Goldens of single characters: which are \\w for Hugging Face's added tokens, and its four normal
forms of every code point between others. Written as digests.

usage: make_character_goldens.py OUT_DIR

SPDX-License-Identifier: MIT
"""

import hashlib, json, os, sys

import tokenizers
from tokenizers import AddedToken, Tokenizer, models, normalizers

points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
tokenizer.add_tokens([AddedToken("word", single_word=True)])
words = []  # in front of which an added word is none
for at in range(0, len(points), 65536):
    part = points[at : at + 65536]
    for c, encoding in zip(part, tokenizer.encode_batch([chr(c) + "word" for c in part])):
        if 1 not in encoding.ids:
            words.append(c)
out = {
    "tokenizers": tokenizers.__version__,
    "words": len(words),
    "words_sha256": hashlib.sha256(b"".join(c.to_bytes(4, "little") for c in words)).hexdigest(),
}
for form in ("NFC", "NFD", "NFKC", "NFKD"):
    normalizer, digest = getattr(normalizers, form)(), hashlib.sha256()
    for c in points:
        digest.update(
            normalizer.normalize_str("a\u0315" + chr(c) + "\u0327\u0301b").encode() + b"\n"
        )
    out[form] = digest.hexdigest()
with open(os.path.join(sys.argv[1], "characters.json"), "w") as file:
    json.dump(out, file, indent=1)
    file.write("\n")
