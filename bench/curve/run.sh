#!/usr/bin/env bash
# Compares the trainer's loss curve with PyTorch's: same initial weights, same samples, 200
# steps of GPT-2 124M in bf16.
#
#   bench/curve/run.sh CORPUS.jsonl VOCAB.json MERGES.txt [STEPS]
#
# Needs an NVIDIA GPU and python3 with torch and transformers; BIN: folder of the programs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
BIN=${BIN:-$here/../../build/release/bin}
corpus=$1 vocab=$2 merges=$3 steps=${4:-200}
work=$(mktemp -d) && trap 'rm -rf -- "$work"' EXIT
PATH=$BIN:$PATH
bpe-tokenize --input "$corpus" --output-prefix "$work/corpus" \
  --vocab-file "$vocab" --merge-file "$merges" --append-eod
data=(--data-path "$work/corpus_text_document" --split 100,0,0 --data-cache-path "$work/cache"
  --seq-length 1024 --seed 1234)
shuffle-index "${data[@]}" --samples "$((steps * 8)),0,0" --tokenizer-type GPT2BPETokenizer
train=(trainer --num-layers 12 --hidden-size 768 --num-attention-heads 12
  --max-position-embeddings 1024 --micro-batch-size 8 --global-batch-size 8
  --vocab-file "$vocab" --merge-file "$merges" --tokenizer-type GPT2BPETokenizer
  "${data[@]}" --bf16 --attention-dropout 0 --hidden-dropout 0
  --adam-beta1 0.9 --adam-beta2 0.95 --clip-grad 1.0
  --lr-decay-style constant --log-interval 1 --eval-iters 0)
# One step at a learning rate of zero writes the initial weights.
"${train[@]}" --train-iters 1 --lr 0 --min-lr 0 --weight-decay 0 \
  --save "$work/initial" --save-interval 1 >"$work/initial.log"
megatron-to-hf --input "$work/initial" --output "$work/hf" --dtype fp32 \
  --vocab-file "$vocab" --merge-file "$merges"
"${train[@]}" --train-iters "$steps" --lr 3e-4 --min-lr 3e-4 --weight-decay 0.1 \
  --save "$work/run" --save-interval "$steps" | tail -3
python3 "$here/torch_curve.py" "$work/hf" "$work/corpus_text_document" "$work/cache" \
  "$work/run/metrics.jsonl" 8 1024 3e-4
megatron-to-hf --input "$work/run" --output "$work/hf-end" --dtype fp32 \
  --vocab-file "$vocab" --merge-file "$merges"
generate --load "$work/run" --prompt "The history of" --max-new-tokens 40 --greedy
