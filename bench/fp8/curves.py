#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Loss curves of runs that differ in precision: a table of final losses, and a picture.

    bench/fp8/curves.py MODEL-bf16.sSEED.jsonl MODEL-NAME.sSEED.jsonl... [--svg PICTURE.svg]
        [--over-svg PICTURE.svg]

Each run is compared with the one in bf16 of the same seed. "end" is the mean loss of the last tenth
of the steps, over all seeds; "over bf16" is the mean of the differences and, with several seeds,
its standard error. "largest norm" is the largest gradient norm after the first fifth of the steps,
divided by the median over the same steps: it shows spikes. --svg: a picture of the losses of the
first seed; --over-svg: one of percent over bf16, the mean of all seeds.
"""

import json
import statistics
import sys


def read(path):
    rows = [json.loads(line) for line in open(path)]
    rows = [row for row in rows if "lm_loss" in row]
    return [(row["iteration"], row["lm_loss"], row["grad_norm"]) for row in rows]


def smooth(values, width):
    return [statistics.fmean(values[max(0, i - width + 1) : i + 1]) for i in range(len(values))]


def loss_picture(path, runs):
    """Smoothed losses; the first tenth may lie above the picture."""
    curves = {
        name: list(zip([row[0] for row in rows], smooth([row[1] for row in rows], 10)))
        for name, rows in runs.items()
    }
    high = max(curve[len(curve) // 10][1] for curve in curves.values())
    picture(path, curves, min(loss for curve in curves.values() for _, loss in curve), high, ".2f")


def over_picture(path, runs, plain):
    """Percent over bf16 at each step, the mean of the seeds."""
    curves = {}
    for name, seeds in runs.items():
        both = [(seeds[seed], plain[seed]) for seed in seeds if seed in plain]
        curves[name] = [
            (at[0][0][0], statistics.fmean(100 * (a[1] / b[1] - 1) for a, b in at))
            for at in zip(*[list(zip(a, b)) for a, b in both])
        ]
    values = [value for curve in curves.values() for _, value in curve]
    picture(path, curves, min(0, *values), 1.4 * max(0, *values), "+.2f")  # room for the names


def picture(path, curves, low, high, format):
    """Curves of (step, value), drawn from `low` to `high`."""
    width, height, left, bottom = 720, 400, 50, 30
    first = min(curve[0][0] for curve in curves.values())
    last = max(curve[-1][0] for curve in curves.values())
    first = 0 if first * 5 < last else first
    colours = ["#222222", "#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b"]

    def at(step, value):
        return (
            left + (width - left - 10) * (step - first) / (last - first),
            10 + (height - bottom - 10) * (1 - (value - low) / (high - low)),
        )

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for i in range(5):
        value = low + (high - low) * i / 4
        y = at(first, value)[1]
        out.append(
            f'<line x1="{left}" x2="{width - 10}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>'
            f'<text x="8" y="{y + 4:.1f}">{value:{format}}</text>'
        )
        step = first + (last - first) * i // 4
        out.append(f'<text x="{at(step, low)[0] - 12:.1f}" y="{height - 10}">{step}</text>')
    for i, (name, curve) in enumerate(curves.items()):
        points = " ".join("%.1f,%.1f" % at(step, min(value, high)) for step, value in curve)
        out.append(
            f'<polyline points="{points}" fill="none" '
            f'stroke="{colours[i % len(colours)]}" stroke-width="1.2"/>'
            f'<text x="{width - 160}" y="{24 + 16 * i}" '
            f'fill="{colours[i % len(colours)]}">{name}</text>'
        )
    open(path, "w").write("\n".join(out) + "\n</svg>\n")


def end(rows):
    return statistics.fmean(row[1] for row in rows[-max(1, len(rows) // 10) :])


def spike(rows):
    norms = [row[2] for row in rows[len(rows) // 5 :]]
    return max(norms) / statistics.median(norms)


def over(seeds, plain):
    """The mean difference in percent, and its standard error."""
    both = [seed for seed in seeds if seed in plain]
    differences = [100 * (end(seeds[seed]) / end(plain[seed]) - 1) for seed in both]
    text = f"{statistics.fmean(differences):+.2f}%"
    if len(differences) > 1:
        text += f" ± {statistics.stdev(differences) / len(differences) ** 0.5:.2f}"
    return text


def main():
    runs = {}  # by name, then by seed
    for path in sys.argv[1:]:
        if path.endswith(".jsonl"):
            name, seed = path.rsplit("/", 1)[-1].removesuffix(".jsonl").rsplit(".s", 1)
            runs.setdefault(name, {})[seed] = read(path)
    plain = next(name for name in runs if name.endswith("bf16"))
    runs = {plain: runs.pop(plain), **runs}
    print("| run | seeds | steps | end | over bf16 | largest norm over the median |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, seeds in runs.items():
        difference = "" if name == plain else over(seeds, runs[plain])
        print(
            f"| {name} | {len(seeds)} | {max(rows[-1][0] for rows in seeds.values())} "
            f"| {statistics.fmean(map(end, seeds.values())):.4f} | {difference} "
            f"| {max(map(spike, seeds.values())):.2f} |"
        )
    if "--svg" in sys.argv:
        first = next(iter(runs[plain]))
        loss_picture(
            sys.argv[sys.argv.index("--svg") + 1],
            {name: seeds[first] for name, seeds in runs.items() if first in seeds},
        )
    if "--over-svg" in sys.argv:
        recipes = {name: seeds for name, seeds in runs.items() if name != plain}
        over_picture(sys.argv[sys.argv.index("--over-svg") + 1], recipes, runs[plain])


main()
