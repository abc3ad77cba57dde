#!/usr/bin/env python3
"""tokens/s of a trainer run, from its metrics.jsonl: program_rate.py FILE

Prints the median over log intervals, with the first tenth left out, and the mean over the same
steps by the clock, in which evaluations and saves are counted. SPDX-License-Identifier: MIT
"""

import json
import statistics
import sys


def main():
    with open(sys.argv[1]) as file:
        rows = [row for row in map(json.loads, file) if "tokens_per_second" in row]
    rows = rows[len(rows) // 10 :]
    steps = rows[-1]["iteration"] - rows[0]["iteration"]
    seconds = rows[-1]["time"] - rows[0]["time"]
    last = rows[-1]
    tokens = last["tokens_per_second"] * last["seconds_per_iteration"]  # of a step
    median = statistics.median(row["tokens_per_second"] for row in rows)
    print(
        f"trainer: median {median:,.0f} tokens/s of {len(rows)} intervals; "
        f"by the clock {tokens * steps / seconds:,.0f} over {steps} steps"
    )


if __name__ == "__main__":
    main()
