#!/usr/bin/env python3
"""Times tokenize_bench against gigatoken, tiktoken and Hugging Face tokenizers, one thread each.

    cmake --build --preset release --target tokenize_bench
    bench/tokenize.py --vocab vocab.json --merges merges.txt --tokenizer tokenizer.json CORPUS...

A corpus is a file of documents, each ended by a NUL byte (bench/corpora.sh makes some). For each
corpus every other library's ids are compared with ours first. Then all run alternately, each time
in a fresh process, and a table is printed: MB (10^6 bytes of text) per second of the first pass and
of the fastest later pass, medians over the rounds, and how many times as fast ours is. Rates are
per second of processor time, because others may use the machine; with --wall they are per second of
wall time. tiktoken and tokenizers get only the first --slow-bytes of a corpus. gigatoken keeps all
ids of a pass in memory (it has no other way); we reuse one buffer, as a writer of files does;
--keep makes us keep them too. With --ranks cl100k_base.tiktoken there is a second table, of that
vocabulary, beside quicktok (quicktok-v1 on PyPI), which has no GPT-2.
bench/tokenize.sh runs everything; bench/whole.py has the whole processes.
"""

import sys

sys.path.pop(0)  # this folder: this file would stand for the library's tokenize

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time


def encoders(options):
    """Peers by name: a function that loads, and gives a function from documents to flat ids."""

    def gigatoken():
        import gigatoken as peer

        tokenizer = peer.Tokenizer.from_json(open(options.tokenizer).read())
        return lambda documents: tokenizer.encode_batch(documents, parallel=False)

    def tiktoken():
        import tiktoken as peer

        vocab = json.load(open(options.vocab))
        kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
        byte_of = {chr(b): b for b in kept}
        byte_of |= {chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in kept)}
        ranks = {
            bytes(byte_of[c] for c in token): i
            for token, i in vocab.items()
            if token != "<|endoftext|>"
        }
        pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
        encoding = peer.Encoding("gpt2", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        return lambda documents: [encoding.encode_ordinary(d.decode()) for d in documents]

    def tokenizers():
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(options.tokenizer)
        tokenizer.encode_special_tokens = True
        return lambda documents: [tokenizer.encode(d.decode()).ids for d in documents]

    def quicktok():
        import quicktok as peer

        encoding = peer.get_encoding("cl100k_base")
        return lambda documents: encoding.encode_batch([d.decode() for d in documents], 1)[0]

    return {
        "gigatoken": gigatoken,
        "tiktoken": tiktoken,
        "tokenizers": tokenizers,
        "quicktok": quicktok,
    }


def run_peer(options):
    """In a separate process: times passes over one corpus, and writes the ids if requested."""
    raw = open(options.corpora[0], "rb").read()
    documents = [d for d in raw.split(b"\0") if d]
    encode = encoders(options)[options.peer]()
    wall, processor = [], []
    for _ in range(options.passes):
        ids = None
        start, used = time.perf_counter(), time.process_time()
        ids = encode(documents)
        wall.append(time.perf_counter() - start)
        processor.append(time.process_time() - used)
    if options.ids:
        import numpy

        if isinstance(ids, numpy.ndarray):
            flat = ids.astype(numpy.int32)
        elif isinstance(ids, list):
            flat = numpy.concatenate([numpy.asarray(d, dtype=numpy.int32) for d in ids])
        else:
            import awkward

            flat = awkward.to_numpy(awkward.flatten(ids)).astype(numpy.int32)
        flat.tofile(options.ids)
    print(json.dumps({"wall_s": wall, "processor_s": processor}))


def run(command, environment=None):
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{command[0]}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


def our_command(options, corpus, ids="-", ranks=None):
    tokenizer = [ranks] if ranks else [options.vocab, options.merges]
    return [options.program, str(options.passes), corpus, ids, *tokenizer]


def peer_command(options, peer, corpus, ids=None):
    command = [
        options.python,
        os.path.abspath(__file__),
        "--peer",
        peer,
        "--passes",
        str(options.passes),
        "--vocab",
        options.vocab,
        "--merges",
        options.merges,
        "--tokenizer",
        options.tokenizer,
        corpus,
    ]
    return command + (["--ids", ids] if ids else [])


def same_ids(options, peer, corpus, folder, ranks):
    import numpy

    ours, theirs = os.path.join(folder, "ours"), os.path.join(folder, "theirs")
    run(our_command(options, corpus, ours, ranks))
    run(peer_command(options, peer, corpus, theirs))
    with open(ours, "rb") as file:
        count = int(numpy.frombuffer(file.read(8), dtype=numpy.int64)[0])
        file.seek(8 + 8 * count)
        mine = numpy.frombuffer(file.read(), dtype=numpy.int32)
    return numpy.array_equal(mine, numpy.fromfile(theirs, dtype=numpy.int32))


def head_of(corpus, limit, folder):
    """A corpus of the first documents, at most `limit` bytes but at least one document's
    beginning."""
    raw = open(corpus, "rb").read(limit)
    cut = raw.rfind(b"\0")
    raw = raw[:cut] if cut > 0 else raw.decode(errors="ignore").encode()
    path = os.path.join(folder, "head-" + os.path.basename(corpus))
    open(path, "wb").write(raw)
    return path


def compare(options, corpus, peers, folder, level, ranks=None):
    size = sum(len(d) for d in open(corpus, "rb").read().split(b"\0"))
    for peer in peers:
        if not same_ids(options, peer, corpus, folder, ranks):
            sys.exit(f"tokenize.py: {corpus}: ids differ from {peer}")
    measure = "wall_s" if options.wall else "processor_s"
    times = {name: {"first": [], "steady": []} for name in ["gristmill", *peers]}
    environment = {**os.environ, **({"TOK_FORCE_LEVEL": level} if level else {})}
    for _ in range(options.rounds):
        for name in times:
            result = (
                run(
                    our_command(options, corpus, "keep" if options.keep else "-", ranks),
                    environment,
                )
                if name == "gristmill"
                else run(peer_command(options, name, corpus))
            )
            times[name]["first"].append(result[measure][0])
            times[name]["steady"].append(min(result[measure][1:]))
            if name == "gristmill":
                used = result["level"]
    print(
        f"\n{os.path.basename(corpus)}: {size / 1e6:.1f} MB, level {used}, "
        f"{options.rounds} rounds, {measure[:-2]} time"
        + (f", {os.path.basename(ranks)}" if ranks else "")
    )
    print(
        f"{'':12} {'first MB/s':>11} {'ratio':>7} {'steady MB/s':>12} {'ratio':>7}   spread of "
        "steady"
    )
    ours = {k: statistics.median(v) for k, v in times["gristmill"].items()}
    for name, pair in times.items():
        middle = {k: statistics.median(v) for k, v in pair.items()}
        low, high = min(pair["steady"]), max(pair["steady"])
        print(
            f"{name:12} {size / 1e6 / middle['first']:11.1f} "
            f"{middle['first'] / ours['first']:6.2f}x"
            f" {size / 1e6 / middle['steady']:12.1f} {middle['steady'] / ours['steady']:6.2f}x"
            f"   {size / 1e6 / high:.0f}..{size / 1e6 / low:.0f}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpora", nargs="+")
    parser.add_argument("--program", default="build/release/tokenize_bench")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has the peers")
    for name in ("vocab", "merges", "tokenizer"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--slow-bytes", type=int, default=2_000_000, help="0 leaves out the slow peers"
    )
    parser.add_argument("--ranks", help="cl100k_base.tiktoken, for quicktok")
    parser.add_argument("--level", help="force a level on us: plain, avx2, avx512bw, avx512vbmi2")
    parser.add_argument("--wall", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--ids", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        return run_peer(options)
    cpu = next(
        (l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")),
        platform.machine(),
    )
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    load = os.getloadavg()[0]
    print(f"commit {commit}, {cpu}, {os.cpu_count()} cores, load {load:.1f}: {' '.join(sys.argv)}")
    with tempfile.TemporaryDirectory() as folder:
        for corpus in options.corpora:
            compare(options, corpus, ["gigatoken"], folder, options.level)
            if options.slow_bytes:
                compare(
                    options,
                    head_of(corpus, options.slow_bytes, folder),
                    ["tiktoken", "tokenizers"],
                    folder,
                    options.level,
                )
            if options.ranks:
                compare(
                    options,
                    head_of(corpus, max(options.slow_bytes, 20_000_000), folder),
                    ["quicktok"],
                    folder,
                    options.level,
                    options.ranks,
                )


if __name__ == "__main__":
    main()
