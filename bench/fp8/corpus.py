#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Text for bench/fp8/loss.sh from an unpacked source tree: the same bytes from the same tree.

    corpus.py TREE BYTES >corpus

First all prose (*.rst, *.txt), then C files, each group in the order of a hash of the path, up to
BYTES; each document ends with a NUL byte. Files that are not UTF-8, are shorter than 500 bytes or
longer than 200,000 are left out.
"""

import hashlib
import os
import sys

PROSE, CODE = (".rst", ".txt"), (".c", ".h", ".S", ".py")


def documents(tree, ends):
    """Paths of the files with these ends, relative to the tree, in the order of their hashes."""
    paths = [
        os.path.relpath(os.path.join(folder, name), tree)
        for folder, _, names in os.walk(tree)
        for name in names
        if name.endswith(ends)
    ]
    return sorted(paths, key=lambda path: hashlib.sha256(path.encode()).digest())


def main():
    tree, left = sys.argv[1], int(sys.argv[2])
    for path in documents(tree, PROSE) + documents(tree, CODE):
        if os.path.islink(os.path.join(tree, path)):
            continue
        with open(os.path.join(tree, path), "rb") as file:
            text = file.read(200_001)
        try:
            text.decode()
        except UnicodeDecodeError:
            continue
        if not 500 <= len(text) <= 200_000 or b"\0" in text:
            continue
        if len(text) + 1 > left:
            return
        sys.stdout.buffer.write(text + b"\0")
        left -= len(text) + 1


main()
