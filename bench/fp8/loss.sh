#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The effect of FP8 on the loss: one model, trained in bf16 and in FP8 from the same seed on the
# same samples, one run after another.
#   bench/fp8/loss.sh FOLDER CORPUS VOCAB.json MERGES.txt MODEL TOKENS [RECIPE...]
# CORPUS: documents, each ended by a NUL byte. MODEL: 124M, 345M, 774M or 1.3B. RECIPE:
# delayed, tensorwise, rowwise, blockwise, or flags of the trainer in one word list ("--fp8-format
# e4m3 --no-fp8-wgrad"); torch and torchao: PyTorch's bf16 and torchao's FP8 from the same weights
# (torch_loss.py). FOLDER keeps the dataset and each run's
# metrics.jsonl; bench/fp8/curves.py reads them.
# BIN: folder of the programs. SKIP_BF16=1: only the recipes, and no table. SEEDS ("1234"): one run
# of each for each seed, which changes first weights and samples, and so shows how much is chance.
# BASE_TOKENS: all runs go on from one in bf16 that has trained over so many tokens, and bring its
# learning rate down over TOKENS; a seed then changes the samples alone. From first weights, runs
# differ by when they learn something; from here on by little else than their arithmetic.
# bench/fp8/corpus.py makes a corpus.
set -euo pipefail
folder=$1 corpus=$2 vocab=$3 merges=$4 model=$5 tokens=$6
shift 6
PATH=${BIN:-$(cd "$(dirname "$0")/../.." && pwd)/build/release/bin}:$PATH
mkdir -p "$folder"
[ -e "$folder/corpus_text_document.idx" ] ||
  bpe-tokenize -q -0 --input "$corpus" --output-prefix "$folder/corpus" \
    --vocab-file "$vocab" --merge-file "$merges" --append-eod
case $model in
124M) shape=(12 768 12) batch=64 lr=6e-4 length=1024 ;;
345M) shape=(24 1024 16) batch=32 lr=3e-4 length=1024 ;;
774M) shape=(36 1280 20) batch=16 lr=2.5e-4 length=1024 ;;
1.3B) shape=(24 2048 16) batch=8 lr=2e-4 length=2048 ;;
*) echo "loss.sh: $model: 124M, 345M, 774M or 1.3B" >&2 && exit 2 ;;
esac
steps=$((tokens / (batch * length))) base=$((${BASE_TOKENS:-0} / (batch * length)))
data=(--data-path "$folder/corpus_text_document" --split 100,0,0 --seq-length "$length")
trainer_of() { # FLAGS...
  trainer --num-layers "${shape[0]}" --hidden-size "${shape[1]}" \
    --num-attention-heads "${shape[2]}" "${data[@]}" \
    --seed "$seed" --max-position-embeddings "$length" \
    --micro-batch-size "$batch" --global-batch-size "$batch" \
    --vocab-file "$vocab" --merge-file "$merges" --tokenizer-type GPT2BPETokenizer \
    --bf16 --attention-dropout 0 --hidden-dropout 0 --adam-beta2 0.95 \
    --weight-decay 0.1 --eval-iters 0 "$@"
}
schedule=(--train-iters "$steps" --lr "$lr" --min-lr "${lr/e-4/e-5}" --lr-decay-style cosine
  --lr-warmup-iters $((steps / 10)))
if [ "$base" -gt 0 ]; then
  schedule=(--lr "$lr" --min-lr "${lr/e-4/e-5}" --lr-decay-style WSD --lr-wsd-decay-style cosine
    --lr-decay-iters $((base + steps)) --lr-wsd-decay-iters "$steps"
    --lr-warmup-iters $((base / 10)))
  [ -e "$folder/$model-base" ] || seed=1234 trainer_of "${schedule[@]}" --train-iters "$base" \
    --log-interval 5 --data-cache-path "$folder/cache" --save "$folder/$model-base" \
    --save-interval "$base" >"$folder/$model-base.log" 2>&1 || tail -n 3 "$folder/$model-base.log"
  schedule+=(--train-iters $((base + steps)) --load "$folder/$model-base")
fi
train() { # NAME FLAGS...
  local name=$1.s$seed
  shift
  [ ! -e "$folder/$model-$name.jsonl" ] || return 0 # of an earlier call
  trainer_of "${schedule[@]}" --log-interval 5 --data-cache-path "$folder/cache" \
    --metrics-file "$folder/$model-$name.jsonl" "$@" \
    >"$folder/$model-$name.log" 2>&1 || tail -n 3 "$folder/$model-$name.log"
}
torch() { # NAME FLAGS...
  local name=$1.s$seed first=$folder/$model.s$seed
  shift
  [ ! -e "$folder/$model-$name.jsonl" ] || return 0
  # One step at a learning rate of zero writes the first weights.
  [ -e "$first-hf" ] || {
    shuffle-index "${data[@]}" --seed "$seed" --data-cache-path "$first-cache" \
      --samples "$((steps * batch)),0,0" --tokenizer-type GPT2BPETokenizer
    trainer_of --train-iters 1 --lr 0 --min-lr 0 --save "$first" --save-interval 1 \
      >"$first.log" 2>&1 || tail -n 3 "$first.log"
    megatron-to-hf -q --input "$first" --output "$first-hf" --dtype fp32 \
      --vocab-file "$vocab" --merge-file "$merges"
    rm -rf "$first"
  }
  python3 "$(dirname "$0")/torch_loss.py" "$first-hf" "$folder/corpus_text_document" \
    "$first-cache" "$folder/$model-$name.jsonl" "$model" "$steps" "$lr" \
    "${lr/e-4/e-5}" "$@" >"$folder/$model-$name.log" 2>&1 || tail -n 3 "$folder/$model-$name.log"
}
for seed in ${SEEDS:-1234}; do
  [ -n "${SKIP_BF16:-}" ] || train bf16
  for recipe in "$@"; do
    case $recipe in
    delayed | tensorwise | rowwise | blockwise)
      train "$recipe" --fp8-format hybrid --fp8-recipe "$recipe"
      ;;
    torch) torch torch ;;
    torchao) torch torchao --float8 tensorwise ;;
    *) read -ra flags <<<"$recipe" && train "${recipe// /}" "${flags[@]}" ;;
    esac
  done
done
[ -n "${SKIP_BF16:-}" ] || python3 "$(dirname "$0")/curves.py" "$folder/$model"-*.jsonl
