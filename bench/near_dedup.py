#!/usr/bin/env python3
"""Compares near-dedup with datatrove and text-dedup: which documents are dropped, and how fast.

    bench/near_dedup.py --bin build/release/bin [--megabytes 20] [--rounds 3] [--workers 2]
        [--peers datatrove,text-dedup] CORPUS.jsonl...

The corpora's texts are cut into documents of 100 to 400 words. Then copies are added that are
changed as real ones are: words replaced, a heading or a footer added, sentences left out, case and
punctuation changed. All are in a random order with a fixed seed. Every tool uses datatrove's
default definition: 5-grams of words, 14 bands of 8 rows, 64-bit hashes (text-dedup: a threshold of
0.72 and these bands).
First, the exact similarity of each changed copy and its original (Jaccard of 5-grams of \\w+ in
lower case) says which should be found. Printed are, by similarity, the share of pairs of which one
was dropped, and the expected 1 - (1 - s^8)^14; and for each two tools, on how many documents and on
how many of these pairs they agree (text-dedup may keep another document of a group than the first).
Each tool runs from files to files in fresh processes, alternately: MB (10^6 bytes of JSON lines)
per second of wall time, medians.
Needs datatrove and text-dedup with their word tokenizers (spacy).
"""

import sys

sys.path.pop(0)  # this folder: its tokenize.py would stand for the library's tokenize

import argparse
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import tempfile
import time

DATATROVE = r"""
import sys
from datatrove.executor.local import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
from datatrove.pipeline.dedup import MinhashDedupSignature, MinhashDedupBuckets
from datatrove.pipeline.dedup import MinhashDedupCluster, MinhashDedupFilter
from datatrove.pipeline.dedup.minhash import MinhashConfig
if __name__ == "__main__":
    source, out, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
    config = MinhashConfig()
    def run(steps, tasks):
        logs = out + "/logs" + str(len(list(steps))) + str(tasks) + type(steps[-1]).__name__
        LocalPipelineExecutor(pipeline=steps, tasks=tasks, workers=min(tasks, workers),
                              logging_dir=logs).run()
    sigs, buckets, remove = out + "/sigs", out + "/buckets", out + "/remove"
    run([JsonlReader(source), MinhashDedupSignature(output_folder=sigs, config=config)], workers)
    run([MinhashDedupBuckets(input_folder=sigs, output_folder=buckets, config=config)], 14)
    run([MinhashDedupCluster(input_folder=buckets, output_folder=remove, config=config)], 1)
    run([JsonlReader(source), MinhashDedupFilter(input_folder=remove),
         JsonlWriter(out + "/kept", compression=None)], workers)
"""


def words(text):
    return re.findall(r"\w+", text.lower())


def grams(text):
    list_ = words(text)
    return {tuple(list_[i : i + 5]) for i in range(len(list_) - 4)}


def changed(text, chance, vocabulary):
    how = chance.random()
    list_ = text.split(" ")
    if how < 0.5:
        rate = chance.choice([0.002, 0.005, 0.01, 0.02, 0.04, 0.08])
        list_ = [chance.choice(vocabulary) if chance.random() < rate else word for word in list_]
    elif how < 0.7:
        list_ = (
            chance.choices(vocabulary, k=chance.randrange(3, 40))
            + list_
            + chance.choices(vocabulary, k=chance.randrange(3, 40))
        )
    elif how < 0.9:
        begin = chance.randrange(len(list_))
        del list_[begin : begin + chance.randrange(1, len(list_) // 3)]
    else:
        list_ = [
            word.upper() if chance.random() < 0.5 else word.replace(",", " ;") for word in list_
        ]
    return " ".join(list_)


def make(corpora, megabytes, folder):
    chance = random.Random(5)
    texts = []
    for corpus in corpora:
        for line in open(corpus):
            texts.append(json.loads(line)["text"] if corpus.endswith("l") else line)
    list_ = " ".join(texts).split(" ")
    vocabulary = [word for word in list_[:20000] if word.isalpha()]
    documents, pairs, bytes_, at = [], [], 0, 0
    while bytes_ < megabytes * 10**6:
        if at + 400 > len(list_):  # the corpus again, in another order of sentences
            sentences = " ".join(list_).split(". ")
            chance.shuffle(sentences)
            list_, at = ". ".join(sentences).split(" "), 0
        size = chance.randrange(100, 400)
        original = " ".join(list_[at : at + size])
        at += size
        documents.append(original)
        bytes_ += len(original.encode())
        if chance.random() < 0.3:
            for _ in range(chance.choice([1, 1, 2])):
                copy = changed(original, chance, vocabulary)
                pairs.append((len(documents), len(documents) - 1, original, copy))
                documents.append(copy)
                bytes_ += len(copy.encode())
                original = copy if chance.random() < 0.3 else original
    order = list(range(len(documents)))
    chance.shuffle(order)
    place = {number: position for position, number in enumerate(order)}
    os.makedirs(folder, exist_ok=True)
    half = len(order) // 2
    for part, numbers in enumerate([order[:half], order[half:]]):
        with open(f"{folder}/part{part}.jsonl", "w") as file:
            for number in numbers:
                file.write(
                    json.dumps(
                        {"id": str(place[number]), "text": documents[number]}, ensure_ascii=False
                    )
                    + "\n"
                )
    originals = {text: number for number, text in reversed(list(enumerate(documents)))}
    similar = []
    for number, _, original, copy in pairs:
        a, b = grams(original), grams(copy)
        if a or b:
            similar.append((place[number], place[originals[original]], len(a & b) / len(a | b)))
    return len(documents), similar


def kept(paths):
    ids = set()
    for path in paths:
        for line in open(path):
            ids.add(int(json.loads(line)["id"]))
    return ids


def run_ours(options, source, out):
    parts = [f"{source}/part0.jsonl", f"{source}/part1.jsonl"]
    subprocess.run(
        [
            f"{options.bin}/near-dedup",
            "-q",
            "-w",
            str(options.workers),
            "-o",
            f"{out}/kept",
            "-d",
            f"{out}/dropped",
            *parts,
        ],
        check=True,
    )
    return [f"{out}/kept"]


def run_datatrove(options, source, out):
    script = pathlib.Path(out, "run.py")
    script.write_text(DATATROVE)
    subprocess.run(
        [sys.executable, str(script), source, out, str(options.workers)],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return sorted(map(str, pathlib.Path(out, "kept").glob("*.jsonl")))


def run_text_dedup(options, source, out):
    subprocess.run(
        [
            sys.executable,
            "-m",
            "text_dedup.minhash",
            "--path",
            "json",
            "--data_files",
            f"{source}/*.jsonl",
            "--split",
            "train",
            "--cache_dir",
            f"{out}/cache",
            "--output",
            f"{out}/kept",
            *"--column text --batch_size 1000 --threshold 0.72 --ngram 5 --num_perm 112".split(),
            *"--b 14 --r 8 --min_length 5".split(),
            "--num_proc",
            str(options.workers),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    import datasets

    datasets.disable_progress_bars()
    made = datasets.load_from_disk(f"{out}/kept")
    path = f"{out}/kept.jsonl"
    with open(path, "w") as file:
        for id_ in made["id"]:
            file.write(json.dumps({"id": id_}) + "\n")
    return [path]


TOOLS = {"near-dedup": run_ours, "datatrove": run_datatrove, "text-dedup": run_text_dedup}


def timed(tool, options, source, folder):
    out = tempfile.mkdtemp(dir=folder)
    start = time.perf_counter()
    paths = TOOLS[tool](options, source, out)
    wall = time.perf_counter() - start
    result = kept(paths)
    shutil.rmtree(out)
    return result, wall


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bin", required=True)
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--peers", default="datatrove,text-dedup")
    parser.add_argument("corpora", nargs="+")
    options = parser.parse_args()
    tools = ["near-dedup", *filter(None, options.peers.split(","))]
    with tempfile.TemporaryDirectory() as folder:
        source = f"{folder}/source"
        count, similar = make(options.corpora, options.megabytes, source)
        bytes_ = sum(path.stat().st_size for path in pathlib.Path(source).iterdir())
        print(
            f"{count} documents, {bytes_ / 1e6:.1f} MB, {len(similar)} changed copies; "
            f"{os.cpu_count()} cores, {options.workers} workers, load {os.getloadavg()[0]:.1f}"
        )
        dropped, seconds = {}, {tool: [] for tool in tools}
        for round_ in range(options.rounds):
            for tool in tools:
                ids, wall = timed(tool, options, source, folder)
                dropped[tool] = set(range(count)) - ids
                seconds[tool].append(wall)
        print(
            f"{'similarity':>12} {'pairs':>6} {'chance':>7} "
            + " ".join(f"{tool:>11}" for tool in tools)
        )
        edges = [0, 0.3, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.01]
        for low, high in zip(edges, edges[1:]):
            some = [row for row in similar if low <= row[2] < high]
            if not some:
                continue
            chance = statistics.mean(1 - (1 - s**8) ** 14 for _, _, s in some)
            shares = [
                sum(a in dropped[tool] or b in dropped[tool] for a, b, _ in some) / len(some)
                for tool in tools
            ]
            print(
                f"{low:5.2f} - {min(high, 1):4.2f} {len(some):6} {chance:7.3f} "
                + " ".join(f"{share:11.3f}" for share in shares)
            )
        met = {
            tool: [a in dropped[tool] or b in dropped[tool] for a, b, _ in similar]
            for tool in tools
        }
        for i, one in enumerate(tools):
            print(
                f"{one}: {len(dropped[one])} dropped"
                + "".join(
                    f"; as {other} for {1 - len(dropped[one] ^ dropped[other]) / count:.3f} of "
                    "documents, "
                    f"{statistics.mean(x == y for x, y in zip(met[one], met[other])):.3f} of pairs"
                    for other in tools[:i]
                )
            )
        for tool in tools:
            wall = statistics.median(seconds[tool])
            print(f"{tool:12} {wall:8.2f} s {bytes_ / 1e6 / wall:8.2f} MB/s")


if __name__ == "__main__":
    main()
