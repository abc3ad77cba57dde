#!/usr/bin/env python3
"""Parquet to a Megatron dataset: parquet-extract | bpe-tokenize against what users run today.

    bench/parquet.py --bin build/release/bin --vocab vocab.json --merges merges.txt
        --tokenizer tokenizer.json [--megabytes 200] [--rounds 3]
        [--peers loop,megatron,datatrove] CORPUS.jsonl

A zstd Parquet file with a thousand rows per row group is made from the corpus, which is repeated,
with a number before each text, up to --megabytes. The peers, each with a fresh cache:
  loop       `load_dataset("parquet")`, batches of a thousand texts by tokenizers' `encode_batch`,
             which uses all cores, numpy
  megatron   `load_dataset("parquet").to_json(num_proc=2)`, and on that file what Megatron's
             preprocess_data.py does with 2 workers (bench/whole.py, megatron-slow)
  datatrove  ParquetReader and MegatronDocumentTokenizer, one task, as there is one file;
             `encode_batch`
Before anything is timed, all must write the same .bin and .idx. Then all run alternately, each in a
fresh process; Python's imports count. Printed: MB (10^6 bytes of text) per second of wall and of
processor time, medians. Needs pyarrow, datasets, tokenizers and numpy; megatron-core, torch and
transformers; datatrove.
"""

import sys

sys.path.pop(0)  # this folder: its tokenize.py would stand for the library's tokenize

import argparse
import itertools
import json
import os
import platform
import resource
import shlex
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


TO_JSON = r"""
import sys, datasets
datasets.disable_progress_bars()
file, out, cache = sys.argv[1:]
rows = datasets.load_dataset("parquet", data_files=file, split="train", cache_dir=cache)
rows.to_json(out, num_proc=2, force_ascii=False)
"""

DATATROVE = r"""
import sys, os
from datatrove.executor.local import LocalPipelineExecutor
from datatrove.pipeline.readers import ParquetReader
from datatrove.pipeline.tokens import MegatronDocumentTokenizer
if __name__ == "__main__":
    file, tokenizer, out = sys.argv[1:]
    reader = ParquetReader(os.path.dirname(file), glob_pattern=os.path.basename(file))
    tokens = MegatronDocumentTokenizer(out, tokenizer_name_or_path=tokenizer,
                                       eos_token="<|endoftext|>")
    LocalPipelineExecutor(pipeline=[reader, tokens], tasks=1, workers=1,
                          logging_dir=out + "/logs", skip_completed=False).run()
"""


def make(corpus, megabytes, path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = itertools.cycle([json.loads(line)["text"] for line in open(corpus)])
    bytes_, number = 0, 0
    with pq.ParquetWriter(
        path, pa.schema([("text", pa.string()), ("id", pa.int64())]), compression="zstd"
    ) as writer:
        while bytes_ < megabytes * 10**6:
            some = [f"{number + i} {text}" for i, text in enumerate(itertools.islice(texts, 1000))]
            bytes_ += sum(len(text.encode()) for text in some)
            writer.write_table(
                pa.table({"text": some, "id": list(range(number, number + len(some)))})
            )
            number += len(some)
    return bytes_, number


def timed(command):
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{command}: {done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (
        time.perf_counter() - start,
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ["bin", "vocab", "merges", "tokenizer"]:
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default="loop,megatron,datatrove")
    parser.add_argument("corpus")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/corpus.parquet"
        bytes_, rows = make(options.corpus, options.megabytes, file)
        ours = [
            "bash",
            "-o",
            "pipefail",
            "-c",
            '"$0/parquet-extract" -q -c text "$1" | "$0/bpe-tokenize" -q -f --append-eod '
            '--output-prefix "$2/ours" --vocab-file "$3" --merge-file "$4" --no-pad-vocab-size',
            options.bin,
            file,
            folder,
            options.vocab,
            options.merges,
        ]
        extract = [f"{options.bin}/parquet-extract", "-q", "-c", "text", file]
        quoted = shlex.join
        whole = [
            sys.executable,
            os.path.join(os.path.dirname(os.path.abspath(__file__)), "whole.py"),
            "--peer",
            "megatron-slow",
            "--threads",
            "2",
            "--prefix",
            f"{folder}/megatron",
            "--vocab",
            options.vocab,
            "--merges",
            options.merges,
            "--tokenizer",
            options.tokenizer,
        ]
        peers = {
            "loop": (
                "datasets + tokenizers",
                f"{folder}/loop",
                [
                    sys.executable,
                    "-c",
                    PEER,
                    file,
                    options.tokenizer,
                    f"{folder}/loop",
                    f"{folder}/cache",
                ],
            ),
            "megatron": (
                "datasets + preprocess_data.py",
                f"{folder}/megatron",
                [
                    "bash",
                    "-c",
                    quoted(
                        [
                            sys.executable,
                            "-c",
                            TO_JSON,
                            file,
                            f"{folder}/rows.jsonl",
                            f"{folder}/cache",
                        ]
                    )
                    + " && "
                    + quoted(whole + [f"{folder}/rows.jsonl"]),
                ],
            ),
            "datatrove": (
                "datatrove",
                f"{folder}/trove/00000_tokens",
                [sys.executable, "-c", DATATROVE, file, options.tokenizer, f"{folder}/trove"],
            ),
        }
        peers = {name: peers[name] for name in options.peers.split(",")}
        commands = {
            "parquet-extract alone": extract,
            "parquet-extract | bpe-tokenize": ours,
            **{name: command for name, _, command in peers.values()},
        }
        timed(ours)
        for name, prefix, command in peers.values():
            timed(command)
            for end in ["bin", "idx"]:
                if (
                    open(f"{folder}/ours_text_document.{end}", "rb").read()
                    != open(f"{prefix}.{end}", "rb").read()
                ):
                    sys.exit(f"{name}: the .{end} files differ")
        seconds = {name: [] for name in commands}
        for _ in range(options.rounds):
            for name, command in commands.items():
                shutil.rmtree(f"{folder}/cache", ignore_errors=True)
                shutil.rmtree(f"{folder}/trove", ignore_errors=True)
                seconds[name].append(timed(command))
        print(
            f"{bytes_ / 1e6:.1f} MB of text, {rows} rows, {os.path.getsize(file) / 1e6:.1f} MB of "
            f"Parquet; {platform.processor() or platform.machine()}, "
            f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; the same .bin and .idx"
        )
        for name, pairs in seconds.items():
            wall, processor = (statistics.median(pair[i] for pair in pairs) for i in (0, 1))
            print(
                f"{name:32} {wall:8.2f} s {bytes_ / 1e6 / wall:8.1f} MB/s   processor "
                f"{processor:8.2f} s {bytes_ / 1e6 / processor:8.1f} MB/s"
            )


if __name__ == "__main__":
    main()
