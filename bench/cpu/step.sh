#!/usr/bin/env bash
# Times a whole training step on the CPU in fp32, alternating the trainer and PyTorch in one run.
#
#   bench/cpu/step.sh [-b FOLDER] [-p PYTHON] [-r ROUNDS] [-n STEPS] [MODEL [THREADS...]]
#
# MODEL: demo (what ./bootstrap demo trains; 8 x 128 tokens) or 124M (GPT-2, 1 x 512). THREADS:
# default 1 2. FOLDER: the programs, default build/release/bin; a second -b FOLDER is timed as well.
# Needs python3 with torch and safetensors. step.py says what is compared, and how.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bins=() python=python3 rounds=6 steps=0
while [[ ${1:-} == -[bprn] ]]; do
  case $1 in
    -b) bins+=("$(cd "$2" && pwd)") ;;
    -p) python=$2 ;;
    -r) rounds=$2 ;;
    -n) steps=$2 ;;
  esac
  shift 2
done
[ ${#bins[@]} -gt 0 ] || bins=("$here/../../build/release/bin")
model=${1:-demo}
shift || true
[ $# -gt 0 ] || set -- 1 2
work=$(mktemp -d) && trap 'rm -rf -- "$work"' EXIT

case $model in
  demo)
    shape=(--num-layers 4 --hidden-size 128 --num-attention-heads 4 --seq-length 128
      --max-position-embeddings 128 --micro-batch-size 8 --global-batch-size 8 --vocab-size 4096)
    default_steps=20
    ;;
  124M)
    shape=(--num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 512
      --max-position-embeddings 512 --micro-batch-size 1 --global-batch-size 1 --vocab-size 50304)
    default_steps=3
    ;;
  *) echo "$0: $model: demo or 124M" >&2; exit 2 ;;
esac
[ "$steps" -gt 0 ] || steps=$default_steps
bin=${bins[0]}
run() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }; }
run "$bin/make-dataset" "$work/d" 20000 400 1 no-manifest
# Dropout 0; every sequence whole; the same schedule for both.
line=("${shape[@]}" --make-vocab-size-divisible-by 128 --device cpu
  --data-path "$work/d" --data-cache-path "$work/cache" --split 100,0,0
  --attention-dropout 0 --hidden-dropout 0 --adam-beta1 0.9 --adam-beta2 0.95 --clip-grad 1.0
  --lr-decay-style constant --eval-iters 0 --seed 1234 --log-interval 1)
# One step at a learning rate of zero writes the initial weights.
run "$bin/trainer" "${line[@]}" --train-iters 1 --lr 0 --min-lr 0 --weight-decay 0 \
  --save "$work/initial" --save-interval 1
run "$bin/megatron-to-hf" --input "$work/initial" --output "$work/hf" --dtype fp32
for threads; do
  ours=()
  for bin in "${bins[@]}"; do ours+=(--trainer "$bin/trainer"); done
  "$python" "$here/step.py" --model "$model" --weights "$work/hf/model.safetensors" \
    --data "$work/d" --cache "$work/cache" \
    --rounds "$rounds" --steps "$steps" --threads "$threads" "${ours[@]}" -- "${line[@]}"
done
