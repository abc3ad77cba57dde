#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times tokenize_bench against Hugging Face tokenizers and sentencepiece on SentencePiece BPE, one
thread each.

    cmake --build --preset release --target tokenize_bench
    bench/sentencepiece.py --program PROGRAM --folder FOLDER [--vocab-size N] [--rounds N]
        TEXT_FILE...

FOLDER keeps a model of N pieces that is trained on the TEXT_FILEs, in the forms of Llama-2 (model
and tokenizer.json) and of Gemma. Each TEXT_FILE is encoded by all, once cut into documents at its
blank lines and once as one document; the ids are compared first. Printed are MB (10^6 bytes of
text) per second of processor time, medians over the rounds, and how many times as fast ours is. The
first pass is that of a fresh process.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

sys.path[0] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "reference")

import numpy
import sentencepiece
import tokenizers

import sentencepiece_models as made


def library_times(kind, path, documents, ids_out=None):
    if kind == "tokenizers":
        library = tokenizers.Tokenizer.from_file(path)
        library.encode_special_tokens = True
        encode = lambda text: library.encode(text, add_special_tokens=False).ids
    else:
        encode = sentencepiece.SentencePieceProcessor(model_file=path).encode
    start = time.process_time()
    ids = [encode(text) for text in documents]
    used = time.process_time() - start
    return used, numpy.concatenate([numpy.asarray(i, numpy.int32) for i in ids])


def our_times(program, path, corpus, ids_out="-"):
    done = subprocess.run([program, "4", corpus, ids_out, path], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    times = json.loads(done.stdout)["processor_s"]
    return times[0], min(times[1:])


def our_ids(program, path, corpus, folder):
    out = os.path.join(folder, "ids")
    our_times(program, path, corpus, out)
    raw = open(out, "rb").read()
    count = int(numpy.frombuffer(raw[:8], numpy.int64)[0])
    return numpy.frombuffer(raw[8 + 8 * count :], numpy.int32)


def compare(options, kind, path, name, documents, folder):
    corpus = os.path.join(folder, "corpus")
    open(corpus, "w").write("\0".join(documents) + "\0")
    size = sum(len(d.encode()) for d in documents) / 1e6
    mine = our_ids(options.program, path, corpus, folder)
    theirs, first, steady = [], [], []
    for _ in range(options.rounds):
        used, ids = library_times(kind, path, documents)
        if not numpy.array_equal(ids, mine):
            sys.exit(f"{name}: ids differ from {kind}'s")
        theirs.append(used)
        one, more = our_times(options.program, path, corpus)
        first.append(one)
        steady.append(more)
    peer, one, more = (size / statistics.median(times) for times in (theirs, first, steady))
    print(
        f"{os.path.basename(path):16} {name:34} {size:6.2f} {kind:13} {peer:8.2f} {one:8.1f} "
        f"{one / peer:7.1f}x {more:8.1f} {more / peer:7.1f}x",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--program", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--vocab-size", type=int, default=32000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.makedirs(options.folder, exist_ok=True)
    for name, form in (("llama", "llama2"), ("gemma", "gemma1")):
        if not os.path.exists(os.path.join(options.folder, name + ".model")):
            made.train_model(name, options.texts, options.folder, options.vocab_size)
        tree = made.tokenizer_json(form, options.folder)
        json.dump(tree, open(os.path.join(options.folder, form + ".json"), "w"))
    cpu = next(
        (l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")),
        platform.machine(),
    )
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    print(
        f"commit {commit}, {cpu}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
        f"tokenizers {tokenizers.__version__}, "
        f"sentencepiece {sentencepiece.__version__}: {' '.join(sys.argv)}"
    )
    print(
        f"{'tokenizer':16} {'text':34} {'MB':>6} {'peer':13} {'MB/s':>8} {'first':>8} {'ratio':>8} "
        f"{'steady':>8} {'ratio':>8}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for text_file in options.texts:
            text = open(text_file, encoding="utf-8").read()
            name = os.path.basename(text_file)
            apart = [d for d in text.split("\n\n") if d]
            for kind, tokenizer in (
                ("tokenizers", "llama2.json"),
                ("tokenizers", "gemma1.json"),
                ("sentencepiece", "llama.model"),
            ):
                path = os.path.join(options.folder, tokenizer)
                compare(options, kind, path, f"{name}, {len(apart)} documents", apart, folder)
                compare(options, kind, path, f"{name}, one document", [text], folder)


if __name__ == "__main__":
    main()
