#!/usr/bin/env python3
"""Writes libtok/unicode_tables.cc: the class of every code point, Unicode 16.0 exactly.

Needs a unicodedata of that version: Python 3.14's own, or the package unicodedata2==16.0.0.
Usage: make_unicode_tables.py > libtok/unicode_tables.cc
"""

import sys

VERSION = "16.0.0"
CLASSES = ["Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "P", "S", "space", "other"]
SPACE = {9, 10, 11, 12, 13, 0x20, 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
SPACE |= set(range(0x2000, 0x200B))


def database():
    import unicodedata

    if unicodedata.unidata_version == VERSION:
        return unicodedata
    import unicodedata2

    if unicodedata2.unidata_version != VERSION:
        sys.exit(f"unicodedata2 is {unicodedata2.unidata_version}, expected {VERSION}")
    return unicodedata2


def class_index(ucd, code_point):
    if code_point in SPACE:
        return CLASSES.index("space")
    category = ucd.category(chr(code_point))
    for name in (category, category[0]):
        if name in CLASSES:
            return CLASSES.index(name)
    assert category[0] == "C", (hex(code_point), category)
    return CLASSES.index("other")


def main():
    ucd = database()
    blocks, block_of = {}, []
    for start in range(0, 0x110000, 64):
        block = tuple(class_index(ucd, c) for c in range(start, start + 64))
        block_of.append(blocks.setdefault(block, len(blocks)))
    out = sys.stdout
    out.write(f"""\
// Character classes of Unicode {VERSION}, sixty-four code points a block; see unicode.h.
// Made by tests/reference/make_unicode_tables.py from the Unicode Character Database; not edited.
// This file is data: the limit on a file's length does not apply to it.
// SPDX-License-Identifier: MIT
#include "libtok/unicode.h"

namespace tok {{

// clang-format off
""")
    out.write("const uint16_t kClassBlockOf[0x110000 >> 6] = {\n")
    for i in range(0, len(block_of), 32):
        out.write(",".join(map(str, block_of[i : i + 32])) + ",\n")
    out.write(f"}};\n\nconst uint8_t kClassBlocks[][64] = {{\n")
    for block in blocks:
        out.write("{" + ",".join(map(str, block)) + "},\n")
    out.write("};\n// clang-format on\n\n}  // namespace tok\n")


if __name__ == "__main__":
    main()
