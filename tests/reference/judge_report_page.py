#!/usr/bin/env python3
"""Looks at `report`'s page in headless Chromium, at the widths of a phone, a tablet and a desktop,
light and dark, and on A4.

    tests/reference/judge_report_page.py --bin build/release/bin [--keep FOLDER] [RUN_OR_DATASET...]

Without runs, three are made up, with long names, gaps, restarts and a dataset. Each page must have
nothing wider than the window (but in regions that scroll, and not on paper), no text of less than
4.5 to 1 against what is behind it, no text of a picture that is cut off, and a name for every
picture, region and table column. Screenshots and the A4 pages go to --keep. Needs chromium. Prints
one line a view, and exits 1 if anything is wrong.
"""

import argparse
import json
import math
import pathlib
import random
import re
import subprocess
import sys
import tempfile

# A4 less 10 mm on each side
VIEWS = {"phone": (390, 844), "tablet": (768, 1024), "desktop": (1280, 900), "A4": (718, 1000)}

# Runs in the page; leaves its findings in the document, which --dump-dom prints.
PROBE = r"""
addEventListener("load", () => {
  const wrong = [], paper = PAPER, page = document.documentElement;
  const name = e => e.tagName.toLowerCase() +
    (e.className.baseVal ?? e.className ? "." + (e.className.baseVal ?? e.className) : "") +
    " '" + (e.textContent || "").trim().slice(0, 30) + "'";
  const shown = e => e.getClientRects().length && getComputedStyle(e).visibility !== "hidden";
  if (page.scrollWidth > innerWidth)
    wrong.push(`the page is ${page.scrollWidth} wide, the window ${innerWidth}`);
  const channel = c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const parse = text => text.match(/[\d.]+/g).map(Number);
  const luminance = c =>
    0.2126 * channel(c[0] / 255) + 0.7152 * channel(c[1] / 255) + 0.0722 * channel(c[2] / 255);
  const ratio = (a, b) => {
    const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c[3] !== 0) return c;
    }
    return [255, 255, 255];
  };
  let texts = 0, lowest = 99;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !shown(e) || e.closest("script, style")) continue;
    const style = getComputedStyle(e), inSvg = e.closest("svg");
    const found =
      ratio(parse(inSvg ? style.fill : style.color), behind(inSvg ? inSvg.parentElement : e));
    ++texts; lowest = Math.min(lowest, found);
    if (found < 4.5) wrong.push(`contrast ${found.toFixed(2)}: ${name(e)}`);
    const range = document.createRange(); range.selectNodeContents(walker.currentNode);
    const box = range.getBoundingClientRect(), scrolls = !paper && e.closest(".wide, pre");
    if (!scrolls && (box.right > innerWidth + 0.5 || box.left < -0.5))
      wrong.push(`outside of the window: ${name(e)}, ${box.left} to ${box.right}`);
    if (inSvg && getComputedStyle(inSvg).overflow !== "visible") {
      const frame = inSvg.getBoundingClientRect();
      if (box.right > frame.right + 0.5 || box.left < frame.left - 0.5)
        wrong.push(`cut off in its picture: ${name(e)}`);
    }
  }
  if (texts < 50) wrong.push(`only ${texts} texts`);
  for (const e of document.querySelectorAll("svg"))
    if (e.getAttribute("aria-hidden") !== "true" &&
        !(e.getAttribute("role") === "img" && e.getAttribute("aria-label").length > 10))
      wrong.push(`no name: ${name(e)}`);
  for (const e of document.querySelectorAll("[role=region]"))
    if (!e.getAttribute("aria-label")) wrong.push(`no name: ${name(e)}`);
  for (const e of document.querySelectorAll("th"))
    if (!e.textContent.trim())
      wrong.push(`an empty heading in ${name(e.closest("table"))}`);
  for (const e of document.querySelectorAll(".wide, pre"))
    if (e.scrollWidth > e.clientWidth && (e.tabIndex < 0 || paper))
      wrong.push(`cannot be scrolled ${paper ? "on paper" : "by keyboard"}: ${name(e)}`);
  let level = 0;
  for (const e of document.querySelectorAll("h1, h2, h3")) {
    if (+e.tagName[1] > level + 1) wrong.push(`a heading is left out before ${name(e)}`);
    level = +e.tagName[1];
  }
  if (!page.lang || !document.title) wrong.push("no language or no title");
  const out = document.createElement("pre"); out.id = "findings";
  out.textContent = JSON.stringify({
    wrong, texts, lowest,
    pictures: document.querySelectorAll("svg.chart").length,
    background: getComputedStyle(document.body).backgroundColor,
  });
  document.body.append(out);
});
"""


def make_runs(folder):
    chance = random.Random(1)
    for number, name in enumerate(
        [
            "gpt2-124m-lr6e-4-warmup2000-seed1234-a-very-long-name/first",
            "gpt2-124m-lr3e-4",
            "baseline",
        ]
    ):
        run = folder / "runs" / name
        run.mkdir(parents=True)
        time, lines = 1e9, []
        for iteration in range(10, 2001, 10):
            time += 5 + number + (300 if iteration == 1000 else 0)
            loss = 3 + 0.2 * number + 7 * math.exp(-iteration / 300) + chance.gauss(0, 0.03)
            lines.append(
                {
                    "iteration": iteration,
                    "train_iters": 2000,
                    "lm_loss": None if iteration == 700 else loss,
                    "grad_norm": 1 + chance.random(),
                    "learning_rate": 1.5e-5 * min(1, iteration / 200),
                    "tokens_per_second": 2e5 + chance.gauss(0, 5000),
                    "seconds_per_iteration": 0.5 + 0.1 * number,
                    "slowest_rank": chance.randrange(4),
                    "time": time,
                }
            )
            if iteration % 500 == 0:
                lines.append(
                    {
                        "validation": f"iteration {iteration}",
                        "iteration": iteration,
                        "lm_loss": loss + 0.1,
                    }
                )
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (run / "config.toml").write_text(
            f"[Learning rate and optimizer]\nlr = {6e-4 / (number + 1)}\nadam-beta2 = 0.95\n"
            f'save = "/a/cluster/file/system/with/a/long/name/experiments/{name}/checkpoints"\n'
        )
    return [
        str(folder / "runs" / name)
        for name in [
            "gpt2-124m-lr6e-4-warmup2000-seed1234-a-very-long-name/first",
            "gpt2-124m-lr3e-4",
            "baseline",
        ]
    ]


def make_dataset(programs, folder):
    golden = pathlib.Path(__file__).resolve().parent.parent / "golden" / "tools"
    texts = ["one two three " * n for n in (1, 5, 30, 30, 200)] + ["x" * 400, "多字节 текст\n\ttab"]
    corpus = folder / ("a-corpus-with-a-long-name" * 3 + ".jsonl")
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    subprocess.run(
        [
            programs / "bpe-tokenize",
            "-q",
            corpus,
            "--output-prefix",
            folder / "corpus",
            "--vocab-file",
            golden / "vocab.json",
            "--merge-file",
            golden / "merges.txt",
            "--no-pad-vocab-size",
        ],
        check=True,
    )
    return [str(folder / "corpus_text_document")]


def chromium(*arguments):
    command = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        *map(str, arguments),
    ]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def look(page, view, dark, keep):
    paper = view == "A4"
    probed = page.replace(
        "</body>", f"<script>{PROBE.replace('PAPER', 'true' if paper else 'false')}</script></body>"
    )
    if paper:
        probed = probed.replace("@media print", "@media all")  # as printed, but with a script
    name = f"{view}-{'dark' if dark else 'light'}"
    file = keep / f"{name}.html"
    file.write_text(probed)
    options = [
        f"--window-size={VIEWS[view][0]},{VIEWS[view][1]}",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
    ]
    dom = chromium(*options, "--dump-dom", file.as_uri())
    found = json.loads(
        re.search(r'<pre id="findings">(.*?)</pre>', dom, re.S)[1]
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
    )
    if (sum(map(int, re.findall(r"\d+", found["background"])[:3])) < 384) != (dark and not paper):
        found["wrong"].append(f"the page's background is {found['background']}")
    file.write_text(page.replace("</head>", "<style>@page{size:A4;margin:10mm}</style></head>"))
    tall = [f"--window-size={VIEWS[view][0]},3000"]
    if paper:
        chromium("--no-pdf-header-footer", f"--print-to-pdf={keep / name}.pdf", file.as_uri())
        pdf = (keep / f"{name}.pdf").read_bytes()
        boxes = {
            tuple(round(float(n)) for n in box.split())
            for box in re.findall(rb"/MediaBox\s*\[([^\]]*)\]", pdf)
        }
        if boxes - {(0, 0, 595, 842), (0, 0, 596, 842)} or not boxes:
            found["wrong"].append(f"the paper's sizes are {boxes}")
    else:
        chromium(*options, *tall, f"--screenshot={keep / name}.png", file.as_uri())
    file.unlink()
    print(
        f"{name}: {found['texts']} texts, {found['pictures']} charts, "
        f"lowest contrast {found['lowest']:.2f}: " + ("; ".join(found["wrong"][:8]) or "good")
    )
    return not found["wrong"] and found["pictures"] > 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("inputs", nargs="*")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        keep = (options.keep or folder / "keep").resolve()
        keep.mkdir(parents=True, exist_ok=True)
        inputs = options.inputs or make_runs(folder) + make_dataset(options.bin.resolve(), folder)
        subprocess.run([options.bin / "report", *inputs, "-o", folder / "page.html"], check=True)
        page = (folder / "page.html").read_text()
        results = [look(page, view, dark, keep) for view in VIEWS for dark in (False, True)]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
