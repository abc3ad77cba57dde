#!/usr/bin/env python3
"""Compares two extractions of one dump page by page: wiki_compare.py THEIRS.jsonl OURS.jsonl"""

import json
import re
import sys

RESIDUE = re.compile(r"\{\{|\}\}|\|\}|\[\[|<ref|&lt;")


def load(path):
    with open(path, encoding="utf-8") as lines:
        return {page["id"]: page["text"] for page in map(json.loads, lines)}


def paragraphs(text):
    return [p.strip() for p in text.split("\n") if p.strip()]


theirs, ours = load(sys.argv[1]), load(sys.argv[2])
both = [page for page in ours if page in theirs]
a = [paragraphs(theirs[page]) for page in both]
b = [paragraphs(ours[page]) for page in both]
print(f"pages: {len(theirs)} theirs, {len(ours)} ours, {len(both)} in both")
print(
    f"paragraphs: {sum(map(len, a))} theirs, {sum(map(len, b))} ours, "
    f"{sum(len(set(x) & set(y)) for x, y in zip(a, b))} equal"
)
print(
    f"characters: {sum(len(p) for x in a for p in x)} theirs, "
    f"{sum(len(p) for x in b for p in x)} ours"
)
print(
    f"paragraphs with residue: {sum(bool(RESIDUE.search(p)) for x in a for p in x)} theirs, "
    f"{sum(bool(RESIDUE.search(p)) for x in b for p in x)} ours"
)
