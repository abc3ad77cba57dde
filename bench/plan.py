#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Held-out configurations of the layout planner, predicted and measured side by side.

  plan.py draw                             writes the cases to standard output; fixed seed
  plan.py run CASES GPUS [--card FILE] [--seconds S] [--limit SECONDS] [--out FILE] [--done FILE]
                                           --done: leaves out the cases of these results
  plan.py regret GPUS [--card FILE] [--layouts N] [--spread] ...
                                           measures the N best layouts of some models on so many
                                           GPUs: first each model's best, then each one's second;
                                           --spread: also the best of each tensor by pipeline size
  plan.py again RESULTS... [--card NAME]   predicts measured cases anew, without a GPU; prints
                                           results
  plan.py table RESULTS...                 a table of results, the errors, and a plot (plan.svg)
  plan.py jobs [--card NAME]               the layouts of the tutorials' jobs; needs no GPU

Needs plan-training, trainer, make-dataset in PATH, and nvidia-smi. Predictions come from
plan-training --json with every flag of the case fixed; the step from the trainer's metrics (median
of the second half); memory from nvidia-smi."""

import argparse, json, os, random, statistics, subprocess, sys, tempfile, threading, time

SEED = 20261123
MODELS = [  # name, layers, hidden, heads
    ("124M", 12, 768, 12),
    ("345M", 24, 1024, 16),
    ("774M", 36, 1280, 20),
    ("1558M", 48, 1600, 25),
    ("1.3B", 24, 2048, 16),
    ("2.7B/2", 16, 2560, 32),
    ("6.7B/4", 8, 4096, 32),
    ("13B/8", 5, 5120, 40),
]
LAYOUTS_OF_TWO = [
    "",
    "--overlap-grad-reduce",
    "--zero-stage 1 --overlap-grad-reduce --overlap-param-gather",
    "--zero-stage 1",
    "--zero-stage 2 --overlap-grad-reduce --overlap-param-gather",
    "--zero-stage 3 --overlap-grad-reduce --overlap-param-gather",
    "--tensor-model-parallel-size 2",
    "--tensor-model-parallel-size 2 --sequence-parallel",
    "--pipeline-model-parallel-size 2",
    "--pipeline-model-parallel-size 2 --pipeline-schedule zero-bubble",
    "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2",
]


def draw():
    generator = random.Random(SEED)
    cases = []
    for number in range(64):
        name, layers, hidden, heads = generator.choice(MODELS)
        seq = generator.choice([512, 1024, 2048, 4096, 8192])
        gpus = 1 if number % 2 == 0 else 2
        micro = generator.choice([1, 2, 4, 8, 16, 32, 64])
        while (
            micro > 1 and micro * seq * hidden * layers > 1.3e9
        ):  # what 80 GB hold without recomputation, about.
            micro //= 2
        count = generator.choice([1, 1, 2, 4, 8])
        layout = generator.choice(LAYOUTS_OF_TWO) if gpus == 2 else ""
        if "virtual" in layout and layers % 4:
            layout = "--pipeline-model-parallel-size 2"
        if "pipeline" in layout:
            count = max(count, 4)
        recompute = generator.choice(
            ["", "", "", "--recompute-activations", "--recompute-granularity full"]
        )
        shared = gpus if "tensor" not in layout and "pipeline" not in layout else 1
        flags = (
            f"--num-layers {layers} --hidden-size {hidden} --num-attention-heads {heads} "
            f"--seq-length {seq} "
            f"--micro-batch-size {micro} --global-batch-size {micro * count * shared} {layout} "
            f"{recompute}"
        )
        cases.append({"case": number, "model": name, "gpus": gpus, "flags": flags.split()})
    for case in cases:
        print(json.dumps(case))


COMMON = [
    *"--vocab-size 50257 --attention-dropout 0 --hidden-dropout 0 --bf16 --lr 1e-4".split(),
    *"--min-lr 1e-4".split(),
]


def predict(flags, gpus, card, top=0):
    command = ["plan-training", "-q", "--json", "--world-size", str(gpus), *COMMON, *flags]
    command += ["--top", str(top)] if top else ["--as-given"]
    if card:
        command += ["--gpu", card]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)


class Memory(threading.Thread):
    """The most memory that any GPU has used."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most, self.stop = 0, threading.Event()

    def run(self):
        while not self.stop.wait(0.3):
            done = subprocess.run(
                ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                capture_output=True,
                text=True,
            )
            used = [int(line) for line in done.stdout.split() if line.isdigit()]
            self.most = max([self.most, *used])


def measure(flags, gpus, data, seconds, step):
    iterations = max(8, min(400, int(seconds / max(step, 1e-3))))
    with tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "m.jsonl")
        command = [
            "trainer",
            "--nproc-per-node",
            str(gpus),
            *COMMON,
            *flags,
            "--data-path",
            data,
            *"--split 100,0,0 --eval-iters 0 --log-interval 1".split(),
            "--train-iters",
            str(iterations),
            "--lr-decay-style",
            "constant",
            "--metrics-file",
            metrics,
        ]
        memory = Memory()
        memory.start()
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=240)
        memory.stop.set()
        memory.join()
        if done.returncode != 0:
            return {"failed": done.stderr.strip().splitlines()[-1:] or [str(done.returncode)]}
        rows = [json.loads(line) for line in open(metrics)]
        times = [row["seconds_per_iteration"] for row in rows if "seconds_per_iteration" in row]
        return {
            "seconds": statistics.median(times[len(times) // 2 :]),
            "bytes": memory.most * 2**20,
            "planned_bytes": rows[-1].get("planned_memory_bytes"),
        }


def with_data(work):
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "d")
        subprocess.run(
            ["make-dataset", data, "6000", "8000", "1", "int32", "no-manifest"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        work(data)


def run(arguments):
    begin = time.time()
    out = open(arguments.out, "w") if arguments.out else sys.stdout
    done = {json.loads(line)["case"] for line in open(arguments.done)} if arguments.done else set()

    def work(data):
        for line in open(arguments.cases):
            case = json.loads(line)
            if case["gpus"] != arguments.gpus or case["case"] in done:
                continue
            if time.time() - begin > arguments.limit:
                print("plan.py: time is over; cases are left", file=sys.stderr)
                break
            try:
                result = predict(case["flags"], case["gpus"], arguments.card)
                best = result["best"][0] if result["best"] else None
                if best is None:
                    case["skipped"] = "does not fit"
                else:
                    case.update(
                        card=result["card"]["product"],
                        predicted_seconds=best["step_seconds"],
                        predicted_bytes=best["memory_bytes"],
                    )
                    case.update(
                        measure(
                            case["flags"],
                            case["gpus"],
                            data,
                            arguments.seconds,
                            best["step_seconds"],
                        )
                    )
            except Exception as error:  # one case that fails must not lose the others.
                case["failed"] = str(error)
            print(json.dumps(case), file=out, flush=True)

    with_data(work)


def added(flags, given):
    """Flags of a layout that the case itself does not give."""
    out, take = [], False
    for word in flags:
        if word.startswith("--"):
            take = word not in given
        if take:
            out.append(word)
    return out


REGRET = {  # by GPUS: model, layers, hidden, heads, sequence, batch
    2: [
        ("124M", 12, 768, 12, 1024, 64),
        ("1.3B", 24, 2048, 16, 2048, 16),
        ("6.7B/2", 16, 4096, 32, 2048, 16),
        ("774M", 36, 1280, 20, 4096, 16),
    ],
    4: [
        ("124M", 12, 768, 12, 1024, 256),
        ("1.3B", 24, 2048, 16, 2048, 64),
        ("6.7B/2", 16, 4096, 32, 2048, 32),
    ],
}


def sizes(layout):
    """Tensor and pipeline size of a planned layout."""
    flags = layout["flags"]
    names = "--tensor-model-parallel-size", "--pipeline-model-parallel-size"
    return tuple(flags[flags.index(name) + 1] if name in flags else "1" for name in names)


def spread(plan, count):
    """The first `count` layouts, and the first of each tensor by pipeline size after them."""
    taken = plan[:count]
    for layout in plan[count:]:
        if sizes(layout) not in map(sizes, taken):
            taken.append(layout)
    return taken


def regret(arguments):
    begin = time.time()
    out = open(arguments.out, "w") if arguments.out else sys.stdout

    def work(data):
        chosen = {}
        for name, layers, hidden, heads, seq, batch in REGRET[arguments.gpus]:
            flags = (
                f"--num-layers {layers} --hidden-size {hidden} --num-attention-heads {heads} "
                f"--seq-length {seq} --global-batch-size {batch}"
            ).split()
            top = 1000 if arguments.spread else arguments.layouts
            plan = predict(flags, arguments.gpus, arguments.card, top)
            product, layouts = plan["card"]["product"], spread(plan["best"], arguments.layouts)
            chosen[name] = flags, product, layouts
        for place in range(max(len(layouts) for _, _, layouts in chosen.values())):
            for name, (flags, product, layouts) in chosen.items():
                if place >= len(layouts):
                    continue
                if time.time() - begin > arguments.limit:
                    return
                best = layouts[place]
                row = {
                    "model": name,
                    "place": place,
                    "layout": best["layout"],
                    "gpus": arguments.gpus,
                    "card": product,
                    "predicted_seconds": best["step_seconds"],
                    "predicted_bytes": best["memory_bytes"],
                }
                try:
                    row.update(
                        measure(
                            flags + added(best["flags"], flags),
                            arguments.gpus,
                            data,
                            arguments.seconds,
                            best["step_seconds"],
                        )
                    )
                except Exception as error:
                    row["failed"] = str(error)
                print(json.dumps(row), file=out, flush=True)

    with_data(work)


def again(arguments):
    for path in arguments.results:
        for line in open(path):
            case = json.loads(line)
            if "seconds" in case:
                best = predict(case["flags"], case["gpus"], arguments.card)["best"][0]
                case.update(
                    predicted_seconds=best["step_seconds"], predicted_bytes=best["memory_bytes"]
                )
                print(json.dumps(case))


JOBS = [  # name, layers, hidden, heads, vocabulary, samples a step, numbers of GPUs
    ("1.3B", 24, 2048, 16, 50257, 512, (8, 16, 32, 64)),
    ("13B", 40, 5120, 40, 50257, 1024, (8, 16, 32, 64)),
    ("22B", 48, 6144, 64, 51200, 1024, (16, 64)),
    ("6.7B", 32, 4096, 32, 50257, 512, (4,)),
    ("NeoX-20B", 44, 6144, 64, 50432, 1536, (32, 96)),
]


NEOX = (
    "--model-family gpt_neox --position-embedding-type rope --rotary-percent 0.25 "
    "--use-parallel-residual --untie-embeddings-and-output-weights"
).split()


def jobs(arguments):
    print("| job, GPUs | layout | memory | s | tokens/s | MFU |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, layers, hidden, heads, vocabulary, batch, worlds in JOBS:
        for world in worlds:
            flags = (
                f"--num-layers {layers} --hidden-size {hidden} --num-attention-heads {heads} "
                f"--seq-length 2048 --global-batch-size {batch} --local-world-size 8 "
                f"--vocab-size {vocabulary}"
            ).split()
            if "NeoX" in name:
                flags += NEOX
            best = predict(flags, world, arguments.card, 1)["best"][0]
            print(
                f"| {name} on {world} | {best['layout']} | {best['memory_bytes'] / 2**30:.1f} GiB "
                f"| {best['step_seconds']:.4g} | {best['tokens_per_second']:,.0f} "
                f"| {100 * best['mfu']:.1f}% |"
            )


WORDS = {  # of a layout's flags; None: not named.
    "--tensor-model-parallel-size": "tensor {}",
    "--sequence-parallel": "sequence parallel",
    "--pipeline-model-parallel-size": "pipeline {}",
    "--pipeline-schedule": "{}",
    "--num-virtual-stages-per-pipeline-rank": "{} chunks",
    "--zero-stage": "ZeRO {}",
    "--overlap-grad-reduce": "overlapped",
    "--overlap-param-gather": None,
    "--recompute-activations": "recompute attention",
    "--recompute-granularity": "recompute layers",
    "--micro-batch-size": "{}",
    "--global-batch-size": "{}",
}


def in_words(flags):
    words = []
    for i, flag in enumerate(flags):
        if WORDS.get(flag):
            words.append(WORDS[flag].format(flags[i + 1] if i + 1 < len(flags) else ""))
    return ", ".join(words)


def table(arguments):
    rows = [json.loads(line) for path in arguments.results for line in open(path)]
    done = [r for r in rows if "seconds" in r]
    print(
        "| case | model | card, GPUs | micro-batch, batch, layout | predicted ms | measured ms "
        "| error | planned GB | taken GB |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    errors = []
    for r in done:
        error = r["predicted_seconds"] / r["seconds"] - 1
        errors.append(abs(error))
        what = r.get("layout") or in_words(r["flags"])
        print(
            f"| {r.get('case', r.get('place'))} | {r['model']} "
            f"| {r['card'].split()[1]}, {r['gpus']} | "
            f"{what} | {1e3 * r['predicted_seconds']:.1f} | {1e3 * r['seconds']:.1f} | "
            f"{100 * error:+.1f}% | {r['predicted_bytes'] / 1e9:.2f} | {r['bytes'] / 1e9:.2f} |"
        )
    if not errors:
        return
    below = sum(r["predicted_bytes"] < r["bytes"] for r in done)
    print(
        f"\n{len(done)} measured of {len(rows)}: median error "
        f"{100 * statistics.median(errors):.1f}%, worst "
        f"{100 * max(errors):.1f}%; planned memory below taken in {below}"
    )
    for name in sorted({r["model"] for r in done if "place" in r}):
        mine = [r for r in done if r["model"] == name and "place" in r]
        first = next((r for r in mine if r["place"] == 0), None)
        best = min(r["seconds"] for r in mine)
        if first:
            print(
                f"{name}: {len(mine)} layouts, the chosen one "
                f"{100 * (first['seconds'] / best - 1):.1f}% slower than the best"
            )
    plot(done)


def plot(rows):
    import math

    size, low, high = (
        480,
        min(r["seconds"] for r in rows) / 1.3,
        max(r["seconds"] for r in rows) * 1.3,
    )
    at = lambda s: 40 + (size - 60) * math.log(s / low) / math.log(high / low)
    dots = "".join(
        f'<circle cx="{at(r["seconds"]):.1f}" cy="{size - at(r["predicted_seconds"]):.1f}" r="3" '
        f'fill="none" stroke="{"#c33" if r["gpus"] == 1 else "#36c"}"/>'
        for r in rows
    )
    with open("plan.svg", "w") as out:
        out.write(
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{size}" height="{size}" '
            'font-family="sans-serif" font-size="11">'
            f'<rect width="100%" height="100%" fill="#fff"/>'
            f'<path d="M40 {size - 40}L{size - 20} 20" stroke="#999"/>{dots}'
            f'<text x="{size // 2 - 80}" y="{size - 10}">'
            f"measured s a step, {low:.3f} to {high:.3f}</text>"
            f'<text x="14" y="{size // 2 + 40}" '
            f'transform="rotate(-90 14 {size // 2 + 40})">predicted</text></svg>\n'
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("draw")
    for name in ("run", "regret"):
        one = commands.add_parser(name)
        if name == "run":
            one.add_argument("cases")
            one.add_argument("--done")
        else:
            one.add_argument("--layouts", type=int, default=14)
            one.add_argument("--spread", action="store_true")
        one.add_argument("gpus", type=int)
        one.add_argument("--card")
        one.add_argument("--out")
        one.add_argument("--seconds", type=float, default=4)
        one.add_argument("--limit", type=float, default=540)
    commands.add_parser("table").add_argument("results", nargs="+")
    one = commands.add_parser("again")
    one.add_argument("results", nargs="+")
    one.add_argument("--card", default="h200")
    commands.add_parser("jobs").add_argument("--card", default="h200")
    arguments = parser.parse_args()
    {
        "draw": lambda _: draw(),
        "run": run,
        "regret": regret,
        "again": again,
        "table": table,
        "jobs": jobs,
    }[arguments.command](arguments)


if __name__ == "__main__":
    main()
