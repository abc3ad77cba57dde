# Finds the changes again that a table of docs/mutation-testing.md lists, in the tree as it is now.
#
# SPDX-License-Identifier: MIT

import os
import re

ROW = re.compile(r"^\| `([^`:]+):(\d+)` \| `(.*?)` to `(.*?)` \|")
SHOWN = 60  # characters of an expression that a row shows


def shown(text):
    """An expression as a row of the table shows it: on one line, cut at 60 characters."""
    text = re.sub(r"\s+", " ", text).replace("|", "\\|")
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def rows(path):
    """File, line, and both expressions of every row under "What was not detected", in order."""
    with open(path) as file:
        text = file.read()
    section = re.search(r"^## What was not detected\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    found = [ROW.match(line) for line in section.group(1).splitlines()] if section else []
    return [(m.group(1), int(m.group(2)), m.group(3), m.group(4)) for m in found if m]


def same(row, site):
    return (site["file"], shown(site["before"]), shown(site["after"])) == (row[0], row[2], row[3])


def find(path, tasks, all_sites, workers):
    """The sites of the rows of `path`: those with the same text, nearest to the row's line.

    Returns them in the table's order, and the rows that are no longer in the tree.
    """
    wanted = rows(path)
    files = {row[0] for row in wanted}
    tasks = [
        task for task in tasks if os.path.relpath(task[1], task[0]) in files or files & task[3]
    ]
    sites = sum(all_sites(tasks, workers), [])
    found, gone, taken = [], [], set()
    for row in wanted:
        here = [s for s in sites if same(row, s) and (s["file"], s["start"]) not in taken]
        if not here:
            gone.append(row)
            continue
        site = min(here, key=lambda s: abs(s["line"] - row[1]))
        taken.add((site["file"], site["start"]))
        found.append(site)
    return found, gone
