#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The layout planner on a machine with GPUs: measures the card, then the held-out cases
# (bench/plan-cases.jsonl, drawn before any table was fitted) and the layouts of four models,
# each predicted and measured.
#   bench/plan.sh BIN OUT PART...
# BIN: folder of plan-training, trainer and make-dataset; OUT: where results go.
# Parts: calibrate (about a minute; writes OUT/card.json)
#        cases     (up to 9 minutes for each number of GPUs; OUT/cases-1.jsonl, and with two GPUs
#                  OUT/cases-2.jsonl)
#        regret    (up to 9 minutes, two GPUs; OUT/regret.jsonl)
#        table     (prints the errors of all results in OUT; writes plan.svg there)
# LIMIT (540): seconds after which a part starts no further case. GPUS: number of GPUs of the cases,
# 1 or 2; default both, if there are enough. DONE: results whose cases are not run again.
set -euo pipefail
[ $# -ge 3 ] || { sed -n '/^set /q; 3,$p' "$0" >&2; exit 2; }
bin=$(cd "$1" && pwd) out=$2 here=$(cd "$(dirname "$0")" && pwd)
shift 2
mkdir -p "$out"
out=$(cd "$out" && pwd)
export PATH=$bin:$PATH LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}:$bin/../lib
card=()
use_card() { [ ! -f "$out/card.json" ] || card=(--card "$out/card.json"); }
there() { nvidia-smi -L | wc -l; }

calibrate() {
  nvidia-smi --query-gpu=name,driver_version,power.limit --format=csv,noheader
  time plan-training --calibrate "$out/card.json"
}
cases() {
  use_card
  for gpus in ${GPUS:-1 2}; do
    [ "$gpus" -le "$(there)" ] || continue
    python3 "$here/plan.py" run "$here/plan-cases.jsonl" "$gpus" "${card[@]}" \
      --limit "${LIMIT:-540}" --out "$out/cases-$gpus.jsonl" ${DONE:+--done "$DONE"}
  done
}
regret() {
  use_card
  python3 "$here/plan.py" regret 2 "${card[@]}" --limit "${LIMIT:-540}" --out "$out/regret.jsonl"
}
table() { (cd "$out" && python3 "$here/plan.py" table ./*.jsonl); }

for part; do
  echo "== $part"
  "$part"
done
