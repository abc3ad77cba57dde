#!/usr/bin/env python3
"""Parquet to a Megatron dataset: parquet-extract | bpe-tokenize against `datasets` and a plain loop
over Hugging Face's tokenizers.

    bench/parquet.py --bin build/release/bin --vocab vocab.json --merges merges.txt --tokenizer tokenizer.json \
        [--megabytes 200] [--rounds 3] CORPUS.jsonl

A zstd Parquet file with a thousand rows per row group is made from the corpus, which is repeated,
with a number before each text, up to --megabytes. The other side reads it by
`load_dataset("parquet")` (a fresh cache each time), encodes batches of a thousand texts by
`encode_batch`, which uses all cores, and writes .bin and .idx with numpy. Before anything is timed,
both must write the same .bin and .idx. Then both run alternately, each in a fresh process; Python's
imports count. Printed: MB (10^6 bytes of text) per second of wall and of processor time, medians.
Needs pyarrow, datasets, tokenizers and numpy.
"""
import sys

sys.path.pop(0)  # this folder: its tokenize.py would stand for the library's tokenize

import argparse
import itertools
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import tempfile
import time

PEER = r"""
import sys, numpy, datasets, struct
from tokenizers import Tokenizer
datasets.disable_progress_bars()
file, tokenizer, out, cache = sys.argv[1:]
tokenizer = Tokenizer.from_file(tokenizer)
end = tokenizer.token_to_id("<|endoftext|>")
rows = datasets.load_dataset("parquet", data_files=file, split="train", cache_dir=cache)
lengths = []
with open(out + ".bin", "wb") as bin:
    for batch in rows.iter(batch_size=1000):
        for encoding in tokenizer.encode_batch(batch["text"], add_special_tokens=False):
            ids = numpy.array(encoding.ids + [end], dtype=numpy.uint16)
            lengths.append(len(ids))
            bin.write(ids.tobytes())
lengths = numpy.array(lengths, dtype=numpy.int32)
with open(out + ".idx", "wb") as idx:
    idx.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1))
    idx.write(lengths.tobytes())
    pointers = numpy.zeros(len(lengths), dtype=numpy.int64)
    numpy.cumsum(lengths[:-1].astype(numpy.int64) * 2, out=pointers[1:])
    idx.write(pointers.tobytes())
    idx.write(numpy.arange(len(lengths) + 1, dtype=numpy.int64).tobytes())
"""


def make(corpus, megabytes, path):
    import pyarrow as pa
    import pyarrow.parquet as pq
    texts = itertools.cycle([json.loads(line)["text"] for line in open(corpus)])
    bytes_, number = 0, 0
    with pq.ParquetWriter(path, pa.schema([("text", pa.string()), ("id", pa.int64())]), compression="zstd") as writer:
        while bytes_ < megabytes * 10**6:
            some = [f"{number + i} {text}" for i, text in enumerate(itertools.islice(texts, 1000))]
            bytes_ += sum(len(text.encode()) for text in some)
            writer.write_table(pa.table({"text": some, "id": list(range(number, number + len(some)))}))
            number += len(some)
    return bytes_, number


def timed(command):
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - start, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ["bin", "vocab", "merges", "tokenizer"]:
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("corpus")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/corpus.parquet"
        bytes_, rows = make(options.corpus, options.megabytes, file)
        ours = ["bash", "-o", "pipefail", "-c",
                '"$0/parquet-extract" -q -c text "$1" | "$0/bpe-tokenize" -q -f --append-eod --output-prefix "$2/ours" --vocab-file "$3" '
                '--merge-file "$4" --no-pad-vocab-size', options.bin, file, folder, options.vocab, options.merges]
        extract = [f"{options.bin}/parquet-extract", "-q", "-c", "text", file]
        peer = lambda round_: [sys.executable, "-c", PEER, file, options.tokenizer, f"{folder}/peer", f"{folder}/cache{round_}"]
        timed(ours), timed(peer("first"))
        for end in ["bin", "idx"]:
            if open(f"{folder}/ours_text_document.{end}", "rb").read() != open(f"{folder}/peer.{end}", "rb").read():
                sys.exit(f"the .{end} files differ")
        seconds = {"parquet-extract alone": [], "parquet-extract | bpe-tokenize": [], "datasets + tokenizers": []}
        for round_ in range(options.rounds):
            seconds["parquet-extract alone"].append(timed(extract))
            seconds["parquet-extract | bpe-tokenize"].append(timed(ours))
            seconds["datasets + tokenizers"].append(timed(peer(round_)))
            shutil.rmtree(f"{folder}/cache{round_}")
        print(f"{bytes_ / 1e6:.1f} MB of text, {rows} rows, {os.path.getsize(file) / 1e6:.1f} MB of Parquet; {platform.processor() or platform.machine()}, "
              f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; the same .bin and .idx")
        for name, pairs in seconds.items():
            wall, processor = (statistics.median(pair[i] for pair in pairs) for i in (0, 1))
            print(f"{name:32} {wall:8.2f} s {bytes_ / 1e6 / wall:8.1f} MB/s   processor {processor:8.2f} s {bytes_ / 1e6 / processor:8.1f} MB/s")


if __name__ == "__main__":
    main()
