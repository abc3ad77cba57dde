#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a checkpoint costs on GPUs while it is written, and the seconds from the kill of a rank to
the next step, from disk and from memory.

  bench/lost_rank.py [--size 6.7B|1.3B|tiny] [--gpus N] [--zero-stage Z] [--every STEPS]
                     [--copy-every STEPS] [--device cuda|cpu] [--folder FOLDER]
                     [--only disk|memory]

Needs trainer and make-dataset in PATH. A first run saves every --every steps; once a checkpoint is
on disk, the last rank gets SIGKILL. A second run keeps checkpoints in memory (--in-memory-
checkpoint, --copy-every) and loses its last rank once the first one is complete. The steps that are
done again must have the losses that they had before, else no figure is printed."""

import argparse, os, re, shutil, signal, statistics, subprocess, sys, tempfile, time

SIZES = {  # layers, hidden, heads, length, micro-batch
    "6.7B": (32, 4096, 32, 2048, 4),
    "1.3B": (24, 2048, 16, 2048, 8),
    "tiny": (2, 64, 2, 64, 2),
}


class Run:
    """A trainer under --max-restarts, read line by line."""

    def __init__(self, o, more):
        layers, hidden, heads, length, batch = SIZES[o.size]
        precision = "--bf16" if o.device == "cuda" else "--device cpu --cpu-threads 1"
        words = f"""trainer --num-layers {layers} --hidden-size {hidden}
            --num-attention-heads {heads} --seq-length {length}
            --max-position-embeddings {length} --micro-batch-size {batch}
            --global-batch-size {batch * o.gpus} {precision} --lr 1e-4 --lr-decay-style constant
            --vocab-size 50257 --attention-dropout 0 --hidden-dropout 0 --zero-stage {o.zero_stage}
            --overlap-grad-reduce --overlap-param-gather --data-path d --split 100,0,0
            --eval-iters 0 --log-interval 1 --train-iters 4000 --save saved --load saved
            --nproc-per-node {o.gpus} --max-restarts 2"""
        shutil.rmtree("saved", ignore_errors=True)
        self.process = subprocess.Popen(
            words.split() + more, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.begin, self.said = time.monotonic(), []

    def lines(self):
        """(seconds since the start, step or None, line) of each line."""
        for line in self.process.stdout:
            self.said.append(line.rstrip())
            found = re.search(r" iteration +(\d+)/", line)
            yield time.monotonic() - self.begin, int(found.group(1)) if found else None, line
        sys.exit("lost_rank.py: the run has ended: " + " | ".join(self.said[-5:]))

    def kill_last_rank(self):
        """The time at which it was killed, from the start."""
        pid = self.process.pid
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            os.kill(int(file.read().split()[-1]), signal.SIGKILL)
        return time.monotonic() - self.begin

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is not None:
            return
        pid = self.process.pid
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            ranks = [int(word) for word in file.read().split()]
        self.process.kill()
        for rank in ranks:
            try:
                os.kill(rank, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()


def loss_of(line):
    return re.search(r"lm loss: ([^ |]+)", line).group(1)


def again(run, losses, killed, wanted):
    """Seconds from the kill to the end of the next step, which is the one after `wanted`."""
    restarted = False
    for at, step, line in run.lines():
        restarted = restarted or "restart 1 of" in line
        if step is None or not restarted:  # steps that were done before the kill
            continue
        if step != wanted + 1:
            sys.exit(f"lost_rank.py: goes on with step {step}, not {wanted + 1}")
        if loss_of(line) != losses[step]:
            sys.exit(f"lost_rank.py: step {step} has another loss: {loss_of(line)}, {losses[step]}")
        return at - killed


def median(spans):
    return statistics.median(spans) if spans else float("nan")


def show(name, spans, digits=0):
    words = ", ".join(f"{1e3 * span:.{digits}f}" for span in spans)
    print(f"{name}: median {1e3 * median(spans):.{digits}f} ms, of {words}", flush=True)


def from_disk(o):
    with Run(o, ["--save-interval", str(o.every), "--keep-last", "1"]) as run:
        ends, losses, saved_at, saved = {}, {}, None, None
        for at, step, line in run.lines():
            if "successfully saved checkpoint" in line:
                saved_at = saved_at or at
                saved = saved or int(re.search(r"at iteration +(\d+)", line).group(1))
            if step is None:
                continue
            ends[step], losses[step] = at, loss_of(line)
            # Two steps more than the save, which may not be a multiple of --every itself.
            if saved and step >= saved + 2 and at > saved_at:
                break
        killed = run.kill_last_rank()
        seconds = again(run, losses, killed, saved)
        spans = {s: ends[s] - ends[s - 1] for s in ends if s - 1 in ends}
        size = sum(
            os.path.getsize(os.path.join("saved", f"iter_{saved:07d}", name))
            for name in os.listdir(f"saved/iter_{saved:07d}")
        )
        show("steps before the save", [v for s, v in spans.items() if 3 < s <= saved])
        during = [v for s, v in spans.items() if s > saved and ends[s] <= saved_at]
        show("steps while it is written", during)
        took = saved_at - ends[saved]
        print(f"checkpoint of {size / 1e9:.1f} GB, on disk {took:.1f} s after its step")
        print(f"from the kill to the next step, from disk: {seconds:.2f} s", flush=True)
        shutil.rmtree("saved", ignore_errors=True)


def from_memory(o):
    with Run(o, ["--in-memory-checkpoint", str(o.copy_every)]) as run:
        ends, losses, copied = {}, {}, None
        for at, step, line in run.lines():
            found = re.search(r"checkpoint of step (\d+) is complete in memory, (.*) after", line)
            copied = copied or (found and (int(found.group(1)), found.group(2)))
            if step is None:
                continue
            ends[step], losses[step] = at, loss_of(line)
            if copied and step > copied[0]:
                break
        killed = run.kill_last_rank()
        seconds = again(run, losses, killed, copied[0])
        if not any(f"continuing from step {copied[0]} in memory" in line for line in run.said):
            sys.exit("lost_rank.py: not from memory: " + " | ".join(run.said[-8:]))
        spans = {s: ends[s] - ends[s - 1] for s in ends if s - 1 in ends}
        show("steps without a copy", [v for s, v in spans.items() if 3 < s <= copied[0]])
        show("steps after a copy has begun", [spans[s] for s in spans if copied[0] < s])
        print(f"the first copy is complete {copied[1]} after its step")
        print(f"from the kill to the next step, from memory: {seconds:.2f} s", flush=True)
        shutil.rmtree("saved", ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", default="6.7B", choices=SIZES)
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--zero-stage", default="1")
    parser.add_argument("--every", type=int, default=24)
    parser.add_argument("--copy-every", type=int, default=24)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", choices=["disk", "memory"])
    parser.add_argument("--folder", help="where data and checkpoints go; a temporary one")
    o = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=o.folder) as folder:
        os.chdir(folder)
        subprocess.run(
            ["make-dataset", "d", "4000", "4000", "1", "int32", "no-manifest"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        if o.only != "memory":
            from_disk(o)
        if o.only != "disk":
            from_memory(o)
        os.chdir("/")


if __name__ == "__main__":
    main()
