#!/usr/bin/env bash
# Time from the start of the process to the end of the first step, as the user sees it: everything
# that trainer does before its first iteration line, and that step.
#
#   bench/first-step.sh [-n RUNS] [-b FOLDER] [TRAINER FLAGS...]
#
# RUNS processes one after another (default 5) of the programs in FOLDER (default
# build/release/bin). Without flags: GPT-2 124M; on a GPU --bf16, 64x1024, else fp32, 1x128. Flags
# are added, and override. The data are made first and are in the page cache; every run has an empty
# cache folder, so that on a GPU the choice of algorithms by timing is part of it.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=5 bin=build/release/bin
while [[ ${1:-} == -[nb] ]]; do
  if [ "$1" = -n ]; then runs=$2; else bin=$2; fi
  shift 2
done
bin=$(cd "$bin" && pwd)
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
"$bin/make-dataset" "$work/d" 2000 2000 1 int32 no-manifest >"$work/made" 2>&1 ||
  { cat "$work/made" >&2; exit 1; }

size=(--micro-batch-size 1 --global-batch-size 1 --seq-length 128)
if nvidia-smi -L >/dev/null 2>&1 &&
  ! "$bin/trainer" --device cuda --version 2>&1 | grep -q 'without CUDA'; then
  size=(--bf16 --micro-batch-size 64 --global-batch-size 64 --seq-length 1024)
fi
line=("$bin/trainer" --num-layers 12 --hidden-size 768 --num-attention-heads 12
  --max-position-embeddings 1024 "${size[@]}" --lr 6e-4
  --train-iters 2 --exit-interval 1 --log-interval 1 --eval-iters 0 --vocab-size 50257
  --split 100,0,0 --data-path "$work/d" "$@")

seconds=()
for ((run = 0; run < runs; ++run)); do
  begin=$EPOCHREALTIME end=
  while IFS= read -r text; do
    [[ $text == *" iteration "*" consumed samples: "* && -z $end ]] && end=$EPOCHREALTIME
  done < <(XDG_CACHE_HOME=$work/cache$run "${line[@]}" 2>"$work/errors")
  [ -n "$end" ] || { cat "$work/errors" >&2; exit 1; }
  seconds+=("$(awk -v a="$begin" -v b="$end" 'BEGIN { printf "%.2f", b - a }')")
done
printf '%s\n' "${line[*]}" | sed "s|$work|DATA|; s|$bin/||"
printf 'first step after %s s (median of %d: %s)\n' \
  "$(printf '%s\n' "${seconds[@]}" | sort -n |
    awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')" \
  "$runs" "${seconds[*]}"
