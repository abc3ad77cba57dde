#!/usr/bin/env python3
r"""Writes tests/golden/tok/pretokenize.txt: digests of where the reference engines cut.

Needs tiktoken, tokenizers and regex (versions are recorded in the first line). Each line after
it is
    FAMILY[+FAMILY...] GENERATOR COUNT DIGEST
where a generator is a rule that makes COUNT texts (see texts(), repeated in pretokenize_test.cc)
and the digest is FNV-1a 64 over the byte positions where pieces end, a 32-bit word each, 0 after
each text.
Two other kinds of line: "class NAME COUNT DIGEST", the code points that both engines find in
\\p{NAME} (or \\s), ascending, and "pattern FAMILY PATTERN", what family_of_pattern() must know.
With --check LIB, where LIB exports cut(stages, n, text, length, ends), also compares text by text.
"""

import ctypes
import struct
import sys

import regex
import tiktoken
import tokenizers
from tokenizers import Regex
from tokenizers import pre_tokenizers as pre

CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LINES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PREFIX = r"[^\r\n\p{L}\p{N}]?"
PATTERNS = {
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    # One text, which tokenizers' engine reads in its own way.
    "cl100k_runs": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "llama3": CONTRACTION + "|" + PREFIX + r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + LINES,
    "qwen2": CONTRACTION + "|" + PREFIX + r"\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + LINES,
    "qwen35": f"{CONTRACTION}|{PREFIX}"
    r"[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + LINES,
    "o200k": f"{PREFIX}{UPPER}*{LOWER}+{CONTRACTION}?|{PREFIX}{UPPER}+{LOWER}*{CONTRACTION}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + LINES,
    "tekken": f"{PREFIX}{UPPER}*{LOWER}+|{PREFIX}{UPPER}+{LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + LINES,
    "deepseek3": r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*" + LINES,
    "numbers": r"\p{N}",
    "digit_triples": r"\p{N}{1,3}",
    "cjk_runs": "[一-龥぀-ゟ゠-ヿ]+",
}
FAMILIES = """
    whole gpt2 cl100k cl100k_runs llama3 qwen2 qwen35 o200k tekken nemotron deepseek3 numbers
    digits digit_runs digit_triples cjk_runs
""".split()
CHAINS = [(f,) for f in FAMILIES[1:] if f != "nemotron"] + [
    ("digits", "gpt2"),
    ("digit_triples", "cjk_runs", "deepseek3"),
]

# Every class, every character that a pattern names, every length in UTF-8.
ALPHABET = [
    "a",
    "A",
    "s",
    "L",
    "1",
    " ",
    "\n",
    "\r",
    "\t",
    "'",
    "!",
    "/",
    "\u00a0",
    "\u3000",
    "é",
    "中",
    "\u0301",
    "\u017f",
    "\u0663",
    "\u01c5",
    "\u02b0",
    "\U0001f600",
    "\0",
    "e",
    "\u30c6",
    "\u0378",
]
# A smaller one for longer texts: letter, Letter, contraction letter, number, spaces, newline,
# signs.
SHORT = ["a", "B", "s", "1", " ", "\n", "'", "!", "\u00a0", "中", "\u0301"]
CONTEXTS = [
    "{}",
    " {}",
    "{}'s",
    "{0}{0}",
    "\n{}",
    "1{}",
    "{}1",
    "a {} b",
    "a{}",
    "{}A",
    "!{}a",
    "{} a",
    "'{}",
]


def next_random(state):
    return (state * 6364136223846793005 + 1442695040888963407) & (2**64 - 1)


def texts(generator):
    kind, _, size = generator.partition(":")
    if kind in ("all", "short"):
        alphabet = ALPHABET if kind == "all" else SHORT
        for length in range(1, int(size) + 1):
            for n in range(len(alphabet) ** length):
                out = []
                for _ in range(length):
                    n, i = divmod(n, len(alphabet))
                    out.append(alphabet[i])
                yield "".join(out)
    elif kind == "random":
        state = 1
        for _ in range(int(size)):
            state = next_random(state)
            length = 1 + (state >> 33) % 120
            sticky = (state >> 60) & 3
            out, i = [], 0
            for _ in range(length):
                state = next_random(state)
                if (state >> 35) % 4 >= sticky:
                    i = (state >> 40) % len(ALPHABET)
                out.append(ALPHABET[i])
            yield "".join(out)
    elif kind == "contexts":
        for c in range(0, 0x110000, int(size)):
            if not 0xD800 <= c < 0xE000:
                for context in CONTEXTS:
                    yield context.format(chr(c))


def engine(chain):
    """A function from text to the list of its pieces' lengths in bytes."""
    if chain == ("cl100k",):
        pattern = regex.compile(PATTERNS["cl100k"], regex.V0)  # $ is the end of a line in Oniguruma
        return lambda text: [len(p.encode()) for p in pattern.findall(text)]
    stages = []
    for family in chain:
        if family == "gpt2":
            stages.append(pre.ByteLevel(add_prefix_space=False))
        elif family in ("digits", "digit_runs"):
            stages.append(pre.Digits(individual_digits=family == "digits"))
        else:
            stages.append(pre.Split(Regex(PATTERNS[family]), behavior="isolated"))
    if "gpt2" not in chain:
        stages.append(pre.ByteLevel(add_prefix_space=False, use_regex=False))
    sequence = pre.Sequence(stages)
    return lambda text: [len(p) for p, _ in sequence.pre_tokenize_str(text)]


def tiktoken_agrees(family, pattern):
    """tiktoken's own engine on all texts of at most 3 characters, each possible piece being a
    token."""
    ranks = {bytes([i]): i for i in range(256)}
    some = list(texts("all:3"))
    for text in some:
        ranks.setdefault(text.encode(), len(ranks))
    encoding = tiktoken.Encoding(family, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    cut = engine((family,))
    for text in some:
        got = [len(encoding.decode_single_token_bytes(t)) for t in encoding.encode_ordinary(text)]
        assert got == cut(text), (family, text, got, cut(text))


def fnv(digest, words):
    for byte in struct.pack(f"<{len(words)}I", *words):
        digest = (digest ^ byte) * 0x100000001B3 & (2**64 - 1)
    return digest


def class_members(name):
    """Code points in a class, which tiktoken and tokenizers must agree about."""
    pattern = r"\s" if name == "s" else rf"\p{{{name}}}"
    every = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)
    encoding = tiktoken.Encoding(
        name,
        pat_str=pattern,
        special_tokens={},
        mergeable_ranks={bytes([i]): i for i in range(256)},
    )
    # What the pattern does not match is left out of the encoding.
    members = [ord(c) for c in bytes(encoding.encode_ordinary(every)).decode()]
    split = pre.Split(Regex(pattern), behavior="removed", invert=True)
    theirs = []
    for i in range(0, len(every), 20000):
        theirs += [ord(c) for p, _ in split.pre_tokenize_str(every[i : i + 20000]) for c in p]
    assert members == theirs, name
    return members


def main():
    check = ctypes.CDLL(sys.argv[2]) if sys.argv[1:2] == ["--check"] else None
    for family, pattern in PATTERNS.items():
        if family in ("cl100k", "llama3", "qwen2", "o200k", "tekken", "qwen35"):
            tiktoken_agrees(family, pattern)
    tiktoken_agrees(
        "gpt2", r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
    )
    print(
        f"# tiktoken {tiktoken.__version__} tokenizers {tokenizers.__version__} regex "
        f"{regex.__version__}"
    )
    for name in ["Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "P", "S", "L", "s"]:
        members = class_members(name)
        print("class", name, len(members), f"{fnv(0xCBF29CE484222325, members):016x}")
    for family, pattern in PATTERNS.items():
        print("pattern", family, pattern)
    ends = (ctypes.c_uint32 * 4096)()
    for chain in CHAINS:
        cut = engine(chain)
        main_family = chain[0] in FAMILIES[1:11] or len(chain) > 1
        generators = ["all:3", "random:20000"] + (["short:5"] if main_family else [])
        # The regex module knows more letters than Unicode 16.0 has.
        generators += [] if chain == ("cl100k",) else ["contexts:11"]
        generators += ["contexts:1"] if chain in (("gpt2",), ("digits",)) else []
        stages = bytes(FAMILIES.index(f) for f in chain)
        for generator in generators:
            digest, count, bad = 0xCBF29CE484222325, 0, 0
            for text in texts(generator):
                at, words = 0, []
                for length in cut(text):
                    at += length
                    words.append(at)
                assert at == len(text.encode()), (chain, text)
                if check:
                    raw = text.encode()
                    n = check.cut(stages, len(stages), raw, len(raw), ends)
                    if ends[:n] != words:
                        bad += 1
                        if bad < 5:
                            print(
                                "DIFF",
                                chain,
                                generator,
                                repr(text),
                                words,
                                ends[:n],
                                file=sys.stderr,
                            )
                digest = fnv(digest, words + [0])
                count += 1
            print("+".join(chain), generator, count, f"{digest:016x}", flush=True)


if __name__ == "__main__":
    main()
