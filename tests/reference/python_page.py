#!/usr/bin/env python3
"""Runs every example of docs/python.md, in order, in one folder, each in a process of its own.

    tests/reference/python_page.py --bin build/release/bin

Needs numpy, torch, tokenizers, megatron-core and, for the example with Parquet, pyarrow and a build
that has parquet-extract; an example whose packages or program are missing is named and skipped.
Blocks marked skip are not run. Exits 1 if any example fails.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def fill(folder):
    """Makes the files that the page uses, from the golden vocabulary of the tools' tests."""
    golden = ROOT / "tests" / "golden" / "tools"
    for name in ["vocab.json", "merges.txt"]:
        shutil.copy(golden / name, folder / name)
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(
        models.BPE.from_file(str(golden / "vocab.json"), str(golden / "merges.txt"))
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    texts = [
        f"The {i}th document of the page tells its number {'again and ' * (i % 7)}again: café {i}."
        for i in range(60)
    ]
    (folder / "corpus.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in texts)
    )
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"text": texts}), folder / "rows.parquet")
    except ImportError:
        pass


def lacks(language, code, environment, folder):
    """What an example needs but is missing; empty if nothing is."""
    if language == "sh":
        missing = [
            name
            for name in re.findall(r"^(?:.*\| )?([a-z]+-[a-z]+)", code, re.M)
            if not shutil.which(name, path=environment["PATH"])
        ]
        missing += [
            name for name in re.findall(r"\S+\.parquet", code) if not (folder / name).exists()
        ]
        return missing
    modules = re.findall(r"^(?:import|from) (\w+)", code, re.M)
    return [
        name
        for name in modules
        if subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True).returncode
        != 0
    ]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bin", required=True)
    options = parser.parse_args()
    environment = {
        **os.environ,
        "PATH": f"{pathlib.Path(options.bin).resolve()}:{os.environ['PATH']}",
    }
    page = (ROOT / "docs" / "python.md").read_text()
    failed = ran = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        fill(folder)
        for match in re.finditer(r"^```(sh|python)( skip)?\n(.*?)^```", page, re.M | re.S):
            language, skip, code = match.groups()
            line = page[: match.start()].count("\n") + 1
            if skip:
                continue
            missing = lacks(language, code, environment, folder)
            if missing:
                print(f"docs/python.md:{line}: not run: no {', '.join(missing)}")
                continue
            command = (
                [sys.executable, "-c", code]
                if language == "python"
                else ["bash", "-e", "-o", "pipefail", "-c", code]
            )
            result = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True
            )
            ran += 1
            if result.returncode != 0:
                failed += 1
                print(f"docs/python.md:{line}: failed\n{result.stdout}{result.stderr}")
        for prefix in ["generated", "rows"]:
            if prefix == "generated" or (folder / "rows.parquet").exists():
                assert (folder / f"{prefix}_text_document.idx").exists() or shutil.which(
                    "parquet-extract", path=environment["PATH"]
                ) is None, prefix
        if (folder / "rows_text_document.bin").exists():
            assert (folder / "rows_text_document.bin").read_bytes() == (
                folder / "corpus_text_document.bin"
            ).read_bytes(), "Parquet and JSON lines differ"
    print(f"{ran} examples ran, {failed} failed")
    sys.exit(1 if failed or not ran else 0)


if __name__ == "__main__":
    main()
