#!/usr/bin/env python3
# Seconds from the SIGKILL of a rank to the next finished step, from disk and from memory, by model
# size; what a copy to memory costs; and the goodput of a large run, simulated from these figures.
#
#   bench/recovery.py [--programs build/release/bin] [--ranks 2] [--repeats 5] [--sizes small,...]
#   bench/recovery.py --hosts 2 [...]
#                                    two launchers on the loopback, each a host with --ranks ranks;
#                                    also kills a whole host with its memory, and starts it again
#   bench/recovery.py --simulate     the simulation alone, from the figures in bench/recovery.json
#
# Every run that is killed must end with the losses and the tensors of an undisturbed run before its
# figure counts. "Not cached" asks the system to drop the checkpoint's files from its page cache
# (posix_fadvise) just before the kill. CPU ranks; no other program should be running.
#
# SPDX-License-Identifier: MIT

import argparse
import hashlib
import json
import os
import platform
import random
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

SIZES = {  # layers, width, heads: fp32, so that a checkpoint has 12 bytes for each parameter
    "2M": (4, 128, 4),
    "14M": (6, 384, 6),
    "55M": (10, 640, 10),
    "91M": (12, 768, 12),
    "310M": (24, 1024, 16),
}
VOCABULARY = 8192
STEPS, KILL_AFTER, INTERVAL = 9, 6, 4
# How many times as many steps: a copy, which is made while training goes on, must be done by the
# kill.
LONGER = {"2M": 10}
COLUMNS = {  # by hosts: a column's name, what the run continues from, whether a whole host is lost
    1: [(source, source, False) for source in ("disk, not cached", "disk, cached", "memory")],
    2: [
        ("disk, cached, a rank lost", "disk, cached", False),
        ("memory, a rank lost", "memory", False),
        ("disk, cached, a host lost", "disk, cached", True),
        ("memory, a host lost", "memory", True),
    ],
}
CLOCK = ("time", "seconds", "tokens_per_second", "slowest_rank", "exposed", "data_wait", "memory")


def write_dataset(prefix, documents=400, length=400):
    chance = random.Random(1)
    with open(prefix + ".bin", "wb") as out:
        for _ in range(documents):
            out.write(
                struct.pack(
                    f"<{length}H", *[chance.randrange(VOCABULARY - 1) for _ in range(length)]
                )
            )
    with open(prefix + ".idx", "wb") as out:
        out.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, documents, documents + 1))
        out.write(struct.pack(f"<{documents}i", *[length] * documents))
        out.write(struct.pack(f"<{documents}q", *[2 * length * i for i in range(documents)]))
        out.write(struct.pack(f"<{documents + 1}q", *range(documents + 1)))


class Bench:
    def __init__(self, options, folder):
        self.trainer = os.path.abspath(os.path.join(options.programs, "trainer"))
        self.ranks, self.hosts, self.folder = options.ranks, options.hosts, folder
        self.port = options.port
        self.steps, self.kill_after, self.interval = STEPS, KILL_AFTER, INTERVAL
        write_dataset(os.path.join(folder, "d"))

    def set_size(self, size):
        times = LONGER.get(size, 1)
        self.steps, self.kill_after, self.interval = (
            STEPS * times,
            KILL_AFTER * times,
            INTERVAL * times,
        )

    def words(self, size, save, more):
        layers, width, heads = SIZES[size]
        return [
            self.trainer,
            *f"""--num-layers {layers} --hidden-size {width} --num-attention-heads {heads}
            --seq-length 32 --micro-batch-size 1 --global-batch-size {self.ranks * self.hosts}
            --lr 1e-4 --train-iters {self.steps} --lr-decay-style constant
            --vocab-size {VOCABULARY} --eod-id 0 --data-path d --split 100,0,0
            --eval-iters 0 --log-interval 1 --device cpu --cpu-threads 1
            --nproc-per-node {self.ranks}
            --use-distributed-optimizer --save {save} --load {save}""".split(),
            *more,
        ]

    def start_host(self, host, size, save, more):
        place = (
            {}
            if self.hosts == 1
            else {
                "RANK": str(host),
                "WORLD_SIZE": str(self.hosts),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(self.port),
            }
        )
        # Only the first host's output is read.
        out, err = (
            (subprocess.PIPE, subprocess.PIPE)
            if host == 0
            else (subprocess.DEVNULL, subprocess.DEVNULL)
        )
        return subprocess.Popen(
            self.words(size, save, more),
            cwd=self.folder,
            text=True,
            stdout=out,
            stderr=err,
            env={**os.environ, **place},
        )

    def start(self, size, save, more):
        """The first host's process; the others are in self.others."""
        shutil.rmtree(os.path.join(self.folder, save), ignore_errors=True)
        first = self.start_host(0, size, save, more)
        self.others = [self.start_host(host, size, save, more) for host in range(1, self.hosts)]
        return first

    def end(self, first):
        """Whether all hosts ended well."""
        return all(process.wait() == 0 for process in [first, *self.others])

    def result(self, save):
        """Losses without the clock, and a digest of the last checkpoint's tensors."""
        folder = os.path.join(self.folder, save)
        records = []
        for line in open(os.path.join(folder, "metrics.jsonl")):
            record = json.loads(line)
            records.append({k: v for k, v in record.items() if not any(c in k for c in CLOCK)})
        digest = hashlib.sha256()
        last = os.path.join(folder, f"iter_{self.steps:07d}")
        for name in sorted(os.listdir(last)):
            if name.endswith(".safetensors"):
                with open(os.path.join(last, name), "rb") as file:
                    while block := file.read(1 << 24):
                        digest.update(block)
        return records, digest.hexdigest()

    def checkpoint_bytes(self, save):
        last = os.path.join(self.folder, save, f"iter_{self.steps:07d}")
        return sum(os.path.getsize(os.path.join(last, name)) for name in os.listdir(last))

    def drop_cache(self, save):
        for folder, _, names in os.walk(os.path.join(self.folder, save)):
            for name in names:
                fd = os.open(os.path.join(folder, name), os.O_RDONLY)
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(fd)

    def kill(self, first, whole_host, size, save, more):
        """The last rank, or its host: the launcher with all that it holds, which is started
        again."""
        last = self.others[-1] if self.others else first
        with open(f"/proc/{last.pid}/task/{last.pid}/children") as file:
            ranks = file.read().split()
        fault = time.monotonic()
        if not whole_host:
            os.kill(int(ranks[-1]), signal.SIGKILL)
            return fault
        last.kill()
        last.wait()
        self.others[-1] = self.start_host(self.hosts - 1, size, save, more)
        return fault

    def killed(self, size, save, source, whole_host=False):
        """Seconds from the kill to the end of the next step, which is done a second time."""
        more = ["--max-restarts", "3"]
        more += (
            ["--in-memory-checkpoint", str(self.interval)]
            if source == "memory"
            else ["--save-interval", str(self.interval), "--no-async-save"]
        )
        process = self.start(size, save, more)
        done, fault, first = 0, None, None
        for line in process.stdout:
            found = re.search(r" iteration +(\d+)/", line)
            if not found:
                continue
            done, now = int(found.group(1)), time.monotonic()
            if fault is None and done == self.kill_after:
                if source == "disk, not cached":
                    self.drop_cache(save)
                fault = self.kill(process, whole_host, size, save, more)
            elif fault is not None and first is None and done == self.interval + 1:
                first = now - fault
        err = process.stderr.read()
        if not self.end(process) or first is None:
            sys.exit(f"{size} from {source}: status {process.returncode}: {err}")
        taken = f"continuing from step {self.interval} in memory"
        if (taken in err) != (source == "memory"):
            sys.exit(f"{size}: not from {source}: {err}")
        return first

    def step_seconds(self, size, more):
        process = self.start(size, "timed", more)
        times = []
        for line in process.stdout:
            if re.search(r" iteration +\d+/", line):
                times.append(time.monotonic())
        process.stderr.read()
        if not self.end(process):
            sys.exit(f"{size}: status {process.returncode}")
        return (times[-1] - times[1]) / (len(times) - 2)


def measure(options, folder):
    bench = Bench(options, folder)
    figures = []
    for size in options.sizes.split(","):
        bench.set_size(size)
        process = bench.start(size, "whole", [])
        out, err = process.communicate()
        if not bench.end(process):
            sys.exit(f"{size}: {err}")
        wanted = bench.result("whole")
        row = {
            "size": size,
            "bytes": bench.checkpoint_bytes("whole"),
            "ranks": options.ranks,
            "hosts": options.hosts,
        }
        for name, source, whole_host in COLUMNS[options.hosts]:
            times = []
            for _ in range(options.repeats):
                first = bench.killed(size, "killed", source, whole_host)
                if bench.result("killed") != wanted:
                    sys.exit(
                        f"{size} from {source}: other losses or tensors than an undisturbed run"
                    )
                times.append(first)
            row[name] = sorted(times)
        plain = [bench.step_seconds(size, []) for _ in range(options.repeats)]
        copies = [
            bench.step_seconds(size, ["--max-restarts", "1", "--in-memory-checkpoint", "1"])
            for _ in range(options.repeats)
        ]
        row["step"], row["step with a copy"] = statistics.median(plain), statistics.median(copies)
        figures.append(row)
        print_table([row], len(figures) == 1)
        with open(options.figures, "w") as out:
            json.dump(figures, out, indent=1)


def print_table(figures, head=True):
    if head:
        names = [name for name, *_ in COLUMNS[figures[0]["hosts"]]]
        print(
            "| model | checkpoint | "
            + " | ".join("from " + name for name in names)
            + " | a step | a step with a copy |\n"
            + "| --- " * (len(names) + 4)
            + "|"
        )
    for row in figures:
        cells = [
            f"{statistics.median(row[s]):.2f} s ({row[s][0]:.2f} to {row[s][-1]:.2f})"
            for s, *_ in COLUMNS[row["hosts"]]
        ]
        print(
            f"| {row['size']} | {row['bytes'] / 1e6:.0f} MB | {' | '.join(cells)} |"
            f" {row['step']:.3f} s | {row['step with a copy']:.3f} s |",
            flush=True,
        )


def goodput(mean_between, interval, cost, recovery, hours=2000, seed=1):
    """Share of time in steps whose result is kept. Kills come at random; each loses the work since
    the last checkpoint, and a checkpoint every `interval` seconds of work costs `cost` seconds. A
    kill may come during a recovery, which then begins again."""
    chance = random.Random(seed)
    clock, kept, since = 0.0, 0.0, 0.0
    next_kill = chance.expovariate(1 / mean_between)
    while clock < hours * 3600:
        step = interval - since + cost
        if clock + step <= next_kill:
            clock, kept, since = clock + step, kept + interval, 0.0
            continue
        clock = next_kill
        since = 0.0
        while True:
            next_kill = clock + chance.expovariate(1 / mean_between)
            if next_kill >= clock + recovery:
                clock += recovery
                break
            clock = next_kill
    return kept / clock


def simulate(figures):
    """A kill every ten minutes somewhere among 1,000 GPUs, which all wait for the recovery."""
    row = figures[-1]
    print(
        f"\nSimulated, kills every 600 s on average, with the recovery times of {row['size']}"
        f" ({row['ranks']} ranks, one host) and with 30 s and 60 s more for the start of 1,000 "
        "ranks:\n"
    )
    print(
        "| continues from | checkpoint every | its cost | recovery as measured | + 30 s | "
        "+ 60 s |\n| --- | --- | --- | --- | --- | --- |"
    )
    copy = max(0.0, row["step with a copy"] - row["step"])
    # A save to disk costs a step at least what a copy does: it begins with the same snapshot.
    for source, interval, cost in (
        ("disk, not cached", 1800, copy),
        ("disk, not cached", 300, copy),
        ("memory", 300, copy),
        ("memory", 60, copy),
        ("memory", 30, copy),
        ("memory", 10, copy),
    ):
        recovery = statistics.median(row[source])
        cells = [
            f"{100 * goodput(600, interval, cost, recovery + more):.1f}%" for more in (0, 30, 60)
        ]
        print(f"| {source} | {interval} s | {cost:.2f} s | {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser(
        description="Recovery after a lost rank, from disk and from memory."
    )
    parser.add_argument("--programs", default="build/release/bin")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--hosts", type=int, default=1, choices=COLUMNS)
    parser.add_argument("--port", type=int, default=29700)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sizes", default="2M,14M,55M")
    parser.add_argument(
        "--figures", help="bench/recovery.json, with several hosts bench/recovery_hosts.json"
    )
    parser.add_argument("--simulate", action="store_true")
    options = parser.parse_args()
    options.figures = options.figures or (
        "bench/recovery.json" if options.hosts == 1 else "bench/recovery_hosts.json"
    )
    if not options.simulate:
        print(f"{platform.machine()}, {os.cpu_count()} processors, {time.strftime('%Y-%m-%d')}")
        folder = tempfile.mkdtemp(prefix="recovery.")
        try:
            measure(options, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    if options.hosts == 1:
        simulate(json.load(open(options.figures)))


if __name__ == "__main__":
    main()
