#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Loss curves of runs that differ in precision: a table of final losses, and a picture.

    bench/fp8/curves.py MODEL-bf16.jsonl MODEL-NAME.jsonl... [--svg PICTURE.svg]

The others are compared with the first file whose name ends with bf16.jsonl. "end" is the mean loss
of the last tenth of the steps. "largest norm" is the largest gradient norm after the first fifth of
the steps, divided by the median over the same steps: it shows spikes.
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


def picture(path, runs):
    width, height, left, bottom = 720, 400, 50, 30
    last = max(rows[-1][0] for rows in runs.values())
    curves = {name: smooth([row[1] for row in rows], 10) for name, rows in runs.items()}
    low = min(min(curve) for curve in curves.values())
    high = max(curve[len(curve) // 10] for curve in curves.values())
    colours = ["#222222", "#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e"]

    def at(step, loss):
        return (
            left + (width - left - 10) * step / last,
            10 + (height - bottom - 10) * (1 - (loss - low) / (high - low)),
        )

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for i in range(5):
        loss = low + (high - low) * i / 4
        y = at(0, loss)[1]
        out.append(
            f'<line x1="{left}" x2="{width - 10}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>'
            f'<text x="8" y="{y + 4:.1f}">{loss:.2f}</text>'
        )
        step = last * i // 4
        out.append(f'<text x="{at(step, low)[0] - 12:.1f}" y="{height - 10}">{step}</text>')
    for i, (name, rows) in enumerate(runs.items()):
        points = " ".join(
            "%.1f,%.1f" % at(row[0], min(loss, high)) for row, loss in zip(rows, curves[name])
        )
        out.append(
            f'<polyline points="{points}" fill="none" '
            f'stroke="{colours[i % len(colours)]}" stroke-width="1.2"/>'
            f'<text x="{width - 160}" y="{24 + 16 * i}" '
            f'fill="{colours[i % len(colours)]}">{name}</text>'
        )
    open(path, "w").write("\n".join(out) + "\n</svg>\n")


def main():
    paths = [a for a in sys.argv[1:] if a.endswith(".jsonl")]
    runs = {path.rsplit("/", 1)[-1].removesuffix(".jsonl"): read(path) for path in paths}
    plain = next(name for name in runs if name.endswith("bf16"))
    runs = {plain: runs.pop(plain), **runs}

    def end(rows):
        return statistics.fmean(row[1] for row in rows[-max(1, len(rows) // 10) :])

    print("| run | steps | end | over bf16 | largest norm over the median |")
    print("| --- | --- | --- | --- | --- |")
    for name, rows in runs.items():
        norms = [row[2] for row in rows[len(rows) // 5 :]]
        print(
            f"| {name} | {rows[-1][0]} | {end(rows):.4f} | "
            f"{100 * (end(rows) / end(runs[plain]) - 1):+.2f}% "
            f"| {max(norms) / statistics.median(norms):.2f} |"
        )
    if "--svg" in sys.argv:
        picture(sys.argv[sys.argv.index("--svg") + 1], runs)


main()
