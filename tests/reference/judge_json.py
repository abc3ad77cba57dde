#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares which lines json-extract accepts and refuses with Python's json module, on lines that
are in no golden file.

    python judge_json.py BIN_FOLDER [SEED [LINES]]
Lines are written by json.dumps in several styles, then damaged: tokens inserted, bytes dropped,
changed, cut, repeated. Python accepts a line if it is UTF-8, json.loads() accepts it, and each of
the requested keys is a string or a list of strings without lone surrogates. json-extract must
accept the same lines with the same texts, and put the others into --quarantine unchanged, with 1, 2
and 5 workers and for one key and two. Some refused lines are also read alone after good ones: the
message must name file, line and a byte of that line, counted in the file. Lines contain no CR,
which ends a line, as in Python's text files. Where Python has a limit and json-extract none,
Python's is lifted: digits of a number. Exits 1 at the first difference.
"""

import collections
import json
import os
import random
import re
import subprocess
import sys
import tempfile

BIN = os.path.abspath(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 1
LINES = int(sys.argv[3]) if len(sys.argv) > 3 else 20000
PIECES = ["a", " ", '"', "\\", "é", "\n", "\t", "/", "𝄞", "\0", "\ud83d", "</s>", "\x1f", "\x7f"]
TOKENS = [
    '"',
    "\\",
    "{",
    "}",
    *"[ ] : , true null NaN -Infinity Infinity 1e5 -0 01 1. .5 1E+".split(),
    "\\u",
    "\\ud83d",
    "\\ude00",
    "\\u0000",
    "\\n",
    "\\x",
    "\t",
    " ",
    "\x0b",
    "\0",
    "\u2028",
    "é",
    "𝄞",
    "0",
    '"text"',
    '"text":"again",',
    '"te\\u0078t":"escaped",',
    "\x7f",
    "\ufeff",
    "1" * 50,
    '"\\/\\b\\f"',
    '\\"',
    "\\\\",
    *"- -NaN +1 1e 1e400 -0.0E-0 0x1 1_0 00 1.e1 nul True nan Inf // /**/ 'a'".split(),
    "\\u12G4",
    "\\u-123",
    "\\u 123",
    "\\u012",
    "\\uD83D\\uDE00",
    "\\ud83d\\ud83d\\ude00",
    "\\ude00\\ud83d",
    "\\ud83d\\n",
    "\\ud83d\\u",
    "\\U0041",
    "\\v",
    "\\'",
    "\\\x00",
    "\x0c",
    "\x85",
    "\xa0",
    "\u2003",
    ",,",
    ",}",
    ",]",
    "{}",
    "[]",
    "[[]]",
    "{,",
    '{"text":{"text":"in"}}',
    '"text":["a","b\\u00e9"],',
    '"text":[],',
    '"text":["a",1],',
    '"text":[["a"]],',
    '"text":null,',
    '"meta":"also",',
    '"text":"\\ud800","text":"whole",',
    '"\\ud800":1,',
    '"te\\ud800xt":"x",',
    "[" * 200,
    "]" * 200,
    '{"a":' * 100,
    "}" * 100,
    "9" * 5000,
]


def random_string(chance):
    def piece():
        if chance.random() < 0.1:
            return chr(
                chance.choice([chance.randrange(0xD800), chance.randrange(0xE000, 0x110000)])
            )
        return chance.choice(PIECES + ["b" * chance.randrange(80)])

    return "".join(piece() for _ in range(chance.randrange(12)))


def random_value(chance, depth=0):
    kind = chance.randrange(9)
    if kind < 3 or depth > 3:
        return random_string(chance)
    if kind == 3:
        return chance.choice([True, False, None, float("nan"), float("inf"), -float("inf")])
    if kind == 4:
        return chance.choice([0, -1, 2**70, 1.5, -2e-300, 10**30])
    if kind == 5:
        return [random_value(chance, depth + 1) for _ in range(chance.randrange(4))]
    if kind == 6:
        return {
            chance.choice(["text", "a", "", "t\\ext"]): random_value(chance, depth + 1)
            for _ in range(chance.randrange(4))
        }
    return "x" * chance.randrange(200)


def damaged(chance, line):
    at, kind = chance.randrange(len(line) + 1), chance.randrange(5)
    if kind == 0:
        return line[:at] + chance.choice(TOKENS).encode() + line[at:]
    if kind == 1:
        return line[:at] + line[at + 1 :]
    if kind == 2:
        return line[:at] + bytes([chance.randrange(256)]) + line[at + 1 :]
    if kind == 3:
        return line[:at]
    other = chance.randrange(len(line) + 1)
    return line[:at] + line[min(at, other) : max(at, other)] + line[at:]


def random_line(chance):
    items = [
        ("id", random_value(chance)),
        ("text", random_value(chance)),
        ("meta", random_value(chance)),
    ]
    chance.shuffle(items)
    if chance.random() < 0.1:
        items = items[: chance.randrange(1, 4)]
    line = json.dumps(
        dict(items),
        ensure_ascii=chance.random() < 0.5,
        separators=chance.choice([(",", ":"), (", ", ": "), (" ,\t", " : ")]),
    ).encode("utf-8", "surrogatepass")
    for _ in range(chance.choice([0, 0, 0, 0, 1, 1, 1, 2, 4])):
        line = damaged(chance, line)
    line = line.replace(b"\n", b" ").replace(b"\r", b" ")
    return line if line.strip() else b"{}"


def is_text(value):
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        return False
    strings = value if isinstance(value, list) else [value]
    return all(isinstance(one, str) for one in strings)


def by_python(line, keys):
    """The values of the keys; None if the line is refused."""
    try:
        record = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not all(
        key in record and is_text(record[key]) for key in keys
    ):
        return None
    return [record[key] for key in keys]


def by_program(lines, keys, workers):
    """The values that were written, and the lines that were quarantined."""
    with tempfile.TemporaryDirectory() as work:
        path, out, aside = (os.path.join(work, name) for name in ("in", "out", "aside"))
        with open(path, "wb") as file:
            file.write(b"".join(line + b"\n" for line in lines))
        subprocess.run(
            [
                os.path.join(BIN, "json-extract"),
                "-q",
                "-w",
                str(workers),
                "--on-error",
                "quarantine",
                "--quarantine",
                aside,
                "-o",
                out,
                "-i",
                path,
                "--json-keys",
                *keys,
            ],
            check=True,
        )
        with open(out, encoding="utf-8", newline="\n") as file:
            values = [list(json.loads(line).values()) for line in file]
        with open(aside, "rb") as file:
            return values, file.read().split(b"\n")[:-1]


def judge_places(chance, refused):
    """Reads each line alone after good ones, and checks the place that the message names."""
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "in")
        for line in refused:
            before = chance.randrange(3)
            good = b'{"text":"good"}\n' * before
            with open(path, "wb") as file:
                file.write(good + line + b"\n" * chance.randrange(2))
            done = subprocess.run(
                [os.path.join(BIN, "json-extract"), "-q", "-i", path], capture_output=True
            )
            message = done.stderr.decode()
            place = re.fullmatch(
                r"json-extract: " + re.escape(path) + r":(\d+):(\d+): [^\n]+\n", message
            )
            if (
                done.returncode != 1
                or not place
                or int(place[1]) != before + 1
                or not 1 <= int(place[2]) - len(good) <= len(line) + 1
            ):
                sys.exit(f"{line} as line {before + 1}: exit {done.returncode}: {message}")


def main():
    sys.set_int_max_str_digits(0)
    chance = random.Random(SEED)
    lines = [random_line(chance) for _ in range(LINES)]
    for keys in (["text"], ["meta", "text"]):
        judged = [(line, by_python(line, keys)) for line in lines]
        good = [(line, values) for line, values in judged if values is not None]
        bad = [line for line, values in judged if values is None]
        for workers in (1, 2, 5):
            results, aside = by_program(lines, keys, workers)
            for name, one, other in (("json-extract", aside, bad), ("Python", bad, aside)):
                for line in collections.Counter(one) - collections.Counter(other):
                    sys.exit(f"{workers} workers, keys {keys}: {name} alone refuses {line}")
            for (line, want), got in zip(good, results, strict=True):
                if want != got:
                    sys.exit(
                        f"{workers} workers, keys {keys}: {line}: Python reads {want!r}, "
                        f"json-extract {got!r}"
                    )
        print(
            "Python",
            sys.version.split()[0],
            "seed",
            SEED,
            "keys",
            *keys,
            len(good),
            "lines taken,",
            len(bad),
            "refused: the same with 1, 2 and 5 workers",
        )
        if keys == ["text"]:
            places = chance.sample(bad, min(len(bad), 300))
    judge_places(chance, places)
    print(len(places), "messages name file, line and byte")


main()
