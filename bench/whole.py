#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times bpe-tokenize as a whole process, JSON lines to .bin/.idx, against what users run today.

    bench/whole.py --vocab vocab.json --merges merges.txt --tokenizer tokenizer.json INPUT.jsonl

Peers, each in a fresh process:
  gigatoken      encode_files into memory, by as many threads as we have workers; only the call is
                 timed
  megatron-fast  what Megatron's preprocess_data_fast.py does: encode_files, an end-of-document
                 token after each document, megatron.core's IndexedDatasetBuilder; 2 threads
  megatron-slow  what Megatron's preprocess_data.py does: json.loads and a Hugging Face fast
                 tokenizer in a pool of 2, one document after another into the builder; on the first
                 --slow-bytes of the input
We run with each of --workers (1,2). First the answers are compared: .bin and .idx of each number of
workers, of megatron-fast and of megatron-slow are the same bytes. Then all run in turn, --rounds
times. MB are 10^6 bytes of text; medians; a ratio is taken round by round, then its median. "cpu"
is user and system time of the process and its children, which others on the machine disturb less.
"""

import sys

sys.path.pop(0)  # this folder: a file here would stand for the library's tokenize

import argparse
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time

OURS = "gristmill"


def text_bytes(path):
    total = 0
    with open(path, "rb") as lines:
        for line in lines:
            total += len(json.loads(line)["text"].encode())
    return total


def gigatoken_ids(options, path, threads):
    import gigatoken

    tokenizer = gigatoken.Tokenizer.from_json(open(options.tokenizer).read())
    start = time.perf_counter()
    used = time.process_time()
    ids = tokenizer.encode_files(gigatoken.JsonlFileSource([path]), parallel=threads > 1)
    return ids, time.perf_counter() - start, time.process_time() - used


def run_gigatoken(options, path, threads):
    ids, wall, cpu = gigatoken_ids(options, path, threads)
    return {"call_s": wall, "call_cpu_s": cpu, "documents": len(ids)}


def run_megatron_fast(options, path, prefix):
    started = time.perf_counter()
    import awkward
    import numpy
    from megatron.core.datasets import indexed_dataset

    after_imports = time.perf_counter()
    ids, _, _ = gigatoken_ids(options, path, 2)
    builder = indexed_dataset.IndexedDatasetBuilder(prefix + ".bin", dtype=numpy.uint16)
    ids = awkward.concatenate(
        [ids, awkward.singletons(awkward.Array(numpy.full(len(ids), options.eod, numpy.uint32)))],
        axis=1,
    )
    for begin in range(0, len(ids), 1_000_000):
        some = ids[begin : begin + 1_000_000]
        flat = awkward.to_numpy(awkward.flatten(some)).astype(numpy.uint16)
        builder.data_file.write(flat.tobytes(order="C"))
        lengths = awkward.to_numpy(awkward.num(some)).tolist()
        first = len(builder.sequence_lengths)
        builder.sequence_lengths.extend(lengths)
        builder.document_indices.extend(range(first + 1, first + 1 + len(lengths)))
    builder.finalize(prefix + ".idx")
    return {
        "after_imports_s": time.perf_counter() - after_imports,
        "imports_s": after_imports - started,
    }


def slow_worker(options):
    global slow_tokenizer
    from transformers import PreTrainedTokenizerFast

    slow_tokenizer = PreTrainedTokenizerFast(tokenizer_file=options.tokenizer)
    slow_tokenizer.backend_tokenizer.encode_special_tokens = True


def slow_encode(line):
    data = json.loads(line)
    return slow_tokenizer(data["text"])["input_ids"], len(data["text"].encode())


def run_megatron_slow(options, path, prefix):
    import multiprocessing
    import numpy
    import torch
    import transformers  # as the script's own imports are
    from megatron.core.datasets import indexed_dataset

    after_imports = time.perf_counter()
    builder = indexed_dataset.IndexedDatasetBuilder(prefix + ".bin", dtype=numpy.uint16)
    size = 0
    with multiprocessing.Pool(2, initializer=slow_worker, initargs=(options,)) as pool:
        for ids, length in pool.imap(slow_encode, open(path, encoding="utf-8"), 32):
            builder.add_document(ids + [options.eod], [len(ids) + 1])
            size += length
    builder.finalize(prefix + ".idx")
    return {"after_imports_s": time.perf_counter() - after_imports, "text_bytes": size}


def ours(options, path, prefix, workers):
    return [
        options.program,
        "-q",
        "-f",
        "--vocab-file",
        options.vocab,
        "--merge-file",
        options.merges,
        "--append-eod",
        "--empty-documents",
        "one-sequence",
        "--no-pad-vocab-size",
        "-w",
        str(workers),
        "-o",
        prefix,
        "--input",
        path,
    ]


def run_ours(options, path, prefix, workers):
    for end in (
        ".bin",
        ".idx",
        ".manifest",
    ):  # to free an old dataset of this size takes a tenth of a second
        if os.path.exists(prefix + "_text_document" + end):
            os.remove(prefix + "_text_document" + end)
    return timed(ours(options, path, prefix, workers))


def timed(command, environment=None):
    """Runs a process; its report, wall seconds, processor seconds and peak memory."""
    reader, writer = os.pipe()
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=writer, env=environment)
    os.close(writer)
    output = os.fdopen(reader).read()
    _, status, used = os.wait4(child.pid, 0)
    wall = time.perf_counter() - start
    if status:
        sys.exit(f"{command[0]}: failed")
    line = output.strip().splitlines()[-1] if output.strip() else "{}"
    report = json.loads(line) if line.startswith("{") else {}
    return {
        **report,
        "wall_s": wall,
        "cpu_s": used.ru_utime + used.ru_stime,
        "peak_mb": used.ru_maxrss / 1024,
    }


def peer(options, name, path, prefix, threads):
    command = [
        options.python,
        os.path.abspath(__file__),
        "--peer",
        name,
        "--threads",
        str(threads),
        "--prefix",
        prefix,
        "--vocab",
        options.vocab,
        "--merges",
        options.merges,
        "--tokenizer",
        options.tokenizer,
        path,
    ]
    return timed(
        command,
        {
            **os.environ,
            "RAYON_NUM_THREADS": str(threads),
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONWARNINGS": "ignore",
        },
    )


def same(one, other):
    for end in (".bin", ".idx"):
        with open(one + end, "rb") as a, open(other + end, "rb") as b:
            while True:
                x, y = a.read(1 << 24), b.read(1 << 24)
                if x != y:
                    sys.exit(f"whole.py: {one}{end} and {other}{end} differ")
                if not x:
                    break


def head_of(path, limit, folder):
    head = os.path.join(folder, "head.jsonl")
    raw = open(path, "rb").read(limit)
    open(head, "wb").write(raw[: raw.rfind(b"\n") + 1])
    return head


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("input")
    parser.add_argument("--program", default="build/release/bin/bpe-tokenize")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has the peers")
    for name in ("vocab", "merges", "tokenizer"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--workers", default="1,2", help="numbers of workers, and of gigatoken's threads"
    )
    parser.add_argument("--eod", type=int, default=50256)
    parser.add_argument(
        "--slow-bytes", type=int, default=10_000_000, help="0 leaves megatron-slow out"
    )
    parser.add_argument("--without", default="", help="peers to leave out")
    for name in ("peer", "threads", "prefix"):
        parser.add_argument("--" + name, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        work = {
            "gigatoken": lambda: run_gigatoken(options, options.input, int(options.threads)),
            "megatron-fast": lambda: run_megatron_fast(options, options.input, options.prefix),
            "megatron-slow": lambda: run_megatron_slow(options, options.input, options.prefix),
        }[options.peer]
        return print(json.dumps(work()))
    size = text_bytes(options.input)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    cpu = next(
        (l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), ""
    )
    print(
        f"commit {commit}, {cpu}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; "
        f"{os.path.basename(options.input)}: {os.path.getsize(options.input) / 1e6:.0f} MB of JSON "
        f"lines, {size / 1e6:.0f} MB of text"
    )
    left_out = options.without.split(",")
    workers = [int(count) for count in options.workers.split(",")]
    with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(options.input))) as folder:
        at = lambda name: os.path.join(folder, name)
        dataset = lambda name: at(name) + "_text_document"
        rows = {}
        for count in workers:
            run_ours(options, options.input, at(f"ours{count}"), count)
            same(dataset(f"ours{workers[0]}"), dataset(f"ours{count}"))
            rows[ours_by(count)] = (
                lambda n=count: run_ours(options, options.input, at(f"ours{n}"), n),
                "wall_s",
                "cpu_s",
                size,
            )
        if "gigatoken" not in left_out:
            for threads in workers:
                rows[f"gigatoken, {threads} threads"] = (
                    lambda t=threads: peer(options, "gigatoken", options.input, "-", t),
                    "call_s",
                    "call_cpu_s",
                    size,
                )
        if "megatron-fast" not in left_out:
            fast = lambda: peer(options, "megatron-fast", options.input, at("fast"), 2)
            fast()
            same(dataset(f"ours{workers[0]}"), at("fast"))
            rows["megatron-fast"] = (fast, "wall_s", "cpu_s", size)
        if options.slow_bytes and "megatron-slow" not in left_out:
            head = head_of(options.input, options.slow_bytes, folder)
            slow = lambda: peer(options, "megatron-slow", head, at("slow"), 2)
            few = slow()["text_bytes"]
            run_ours(options, head, at("few"), 1)
            same(dataset("few"), at("slow"))
            rows["megatron-slow"] = (slow, "wall_s", "cpu_s", few)
        table(options, rows, workers)


def ours_by(workers):
    return f"{OURS}, {workers} workers"


def table(options, rows, workers):
    taken = {name: [] for name in rows}
    for _ in range(options.rounds):
        for name, (run, *_) in rows.items():
            taken[name].append(run())
    heads = "".join(f"{'ours ' + str(count):>9}" for count in workers)
    print(
        f"\n{'':22} {'MB/s':>8} {'range':>15} {'cpu MB/s':>9}{heads} {'by cpu':>7} {'peak MB':>8}"
    )
    for name, (_, wall, cpu, size) in rows.items():
        per_byte = {key: [t[key] / size for t in taken[name]] for key in (wall, cpu)}

        def ratio(count, key, mine):
            own = ours_by(count)
            return statistics.median(
                b / (a[mine] / rows[own][3]) for a, b in zip(taken[own], per_byte[key])
            )

        against = "".join(f"{ratio(count, wall, 'wall_s'):8.2f}x" for count in workers)
        rates = sorted(1e-6 / each for each in per_byte[wall])
        print(
            f"{name:22} {statistics.median(rates):8.1f} {rates[0]:7.1f}..{rates[-1]:<6.1f}"
            f" {1e-6 / statistics.median(per_byte[cpu]):9.1f}{against} "
            f"{ratio(workers[0], cpu, 'cpu_s'):6.2f}x"
            f" {max(t['peak_mb'] for t in taken[name]):8.0f}",
            flush=True,
        )
        if "after_imports_s" in taken[name][0]:
            rest = statistics.median(t["after_imports_s"] for t in taken[name])
            print(f"{'  after its imports':22} {size / 1e6 / rest:8.1f}")


if __name__ == "__main__":
    main()
