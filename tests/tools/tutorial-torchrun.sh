# The scripts under torchrun, torch.distributed.launch and deepspeed, as tutorials start them,
# without --no-python. Skipped where torchrun is neither on PATH nor named by TORCHRUN. Where
# deepspeed is neither on PATH nor named by DEEPSPEED, what its launcher does is done by hand.
. "$(dirname "$0")/prelude"
[ -z "${DEEPSPEED:-}" ] || PATH=$PATH:$(dirname "$DEEPSPEED")
[ -z "${TORCHRUN:-}" ] || PATH=$(dirname "$TORCHRUN"):$PATH
command -v torchrun >/dev/null || {
  echo "skipped: torchrun is not installed" \
    "(PyTorch, 200 MB and more, which no part of the check needs)"
  exit 77
}
export GRISTMILL_BIN=$(dirname "$(command -v trainer)") OMP_NUM_THREADS=1
cd "$GOLDEN/../../scripts" || exit 1
for i in $(seq 40); do
  echo '{"text": "5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20"}'
done >"$WORK/corpus.json"
python tools/preprocess_data.py --input "$WORK/corpus.json" --output-prefix "$WORK/my" \
  --tokenizer-type NullTokenizer --vocab-size 100 \
  --append-eod -q; echo "exit $?"
GPT_ARGS="--num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 16
  --max-position-embeddings 16 --micro-batch-size 2 --global-batch-size 4 --lr 0.001
  --train-iters 4 --log-interval 2 --eval-iters 0 --vocab-size 128 --eod-id 100
  --split 100,0,0 --device cpu --data-path $WORK/my_text_document"
own_ports
run_with() { # LAUNCHER...: the losses, and how the trainer was launched
  "$@" pretrain_gpt.py $GPT_ARGS >"$WORK/log" 2>&1; echo "exit $?"
  echo "$(grep -c 'accepted, no effect here' "$WORK/log") named without effect"
  grep -oE 'launched by [a-z]+: rank 0 of 2, local rank 0 of 2, node 0 of 1' "$WORK/log" | head -n 1
  grep -cE '^ \[.*\] iteration' "$WORK/log"
  grep -oE 'lm loss: [^|]*' "$WORK/log" >"$WORK/losses"
  if [ -f "$WORK/first" ]; then
    cmp "$WORK/first" "$WORK/losses" && echo "the same losses"
  else
    mv "$WORK/losses" "$WORK/first"
  fi
}
run_with torchrun --nproc_per_node 2 --nnodes 1 --node_rank 0 --master_addr localhost \
  --master_port $port
run_with python -m torch.distributed.launch --nproc_per_node 2 --nnodes 1 --node_rank 0 \
  --master_addr localhost --master_port $((port + 20))
# deepspeed's launcher starts `python -u SCRIPT --local_rank=N` with these variables.
deepspeed_like() {
  local rank pids=()
  for rank in 1 0; do
    MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 40)) WORLD_SIZE=2 RANK=$rank LOCAL_RANK=$rank \
      LOCAL_SIZE=2 CROSS_RANK=0 CROSS_SIZE=1 \
      python -u "$1" --local_rank=$rank "${@:2}" &
    pids+=($!)
  done
  wait "${pids[@]}"
}
deepspeed=deepspeed_like
if command -v deepspeed >/dev/null; then
  deepspeed="deepspeed --num_gpus 2 --master_port $((port + 40))"
fi
run_with $deepspeed
# A mistake of the command line ends the launcher with the trainer's status.
GPT_ARGS="$GPT_ARGS --hidden-size 33"
$deepspeed pretrain_gpt.py $GPT_ARGS >"$WORK/log" 2>&1; echo "exit $?"
grep -c 'does not divide' "$WORK/log"
