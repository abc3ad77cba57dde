# Megatron-LM's sharded checkpoints, Megatron-DeepSpeed's and torch_dist folders as a start for
# training: the weights are those of a conversion through a transformers folder, and the trainer
# loads them in another layout.
set -u
G=$GOLDEN/convert/gpt2
VOCAB="--vocab-file $G/vocab.json --merge-file $G/merges.txt"
for i in $(seq 60); do
  echo "{\"text\": \"the cat sat on the mat $i and the dog saw it\"}"
done >lines.jsonl
bpe-tokenize --input lines.jsonl --output-prefix lines $VOCAB --append-eod --quiet
megatron-to-hf --quiet --input "$G/v3.pt" --output hf $VOCAB
for source in tp2pp2 virtual deepspeed; do
  megatron-to-hf --quiet --to trainer --input "$G/$source" --output "start-$source" $VOCAB
  megatron-to-hf --quiet --input "start-$source" --output "back-$source" $VOCAB
  cmp hf/model.safetensors "back-$source/model.safetensors" && echo "$source: the same weights"
done
megatron-to-hf --quiet --to trainer --input "$G/tp2pp2" --output start-tp2pp2 $VOCAB
echo "again: $?"
trainer --load start-tp2pp2 --use-checkpoint-args --finetune --save tuned \
  --data-path lines_text_document --split 100,0,0 --micro-batch-size 2 --lr 1e-3 \
  --train-iters 3 --log-interval 1 --eval-iters 0 --device cpu --nproc-per-node 2 \
  --tensor-model-parallel-size 2 >log 2>trainer.err || cat log trainer.err
grep padded trainer.err
grep -cE ' iteration +[0-9]+/' log
# Given to the trainer directly, they are refused with the command that converts them; that command
# works.
refused() {
  trainer "$@" --data-path lines_text_document --micro-batch-size 2 --lr 1e-3 --train-iters 1 \
    --device cpu 2>&1 | tail -n 1
}
cp -r "$G/tp2pp2" megatron && cp -r "$G/deepspeed" deepspeed &&
  cp -r "$GOLDEN/convert/torch_dist/llama_tp2" torch_dist && cp "$G/v3.pt" .
for source in megatron deepspeed torch_dist v3.pt hf; do refused --load $source --finetune; done
refused --pretrained-checkpoint megatron/ --ckpt-step 10 \
  --vocab-file "$G/vocab.json" --merge-file "$G/merges.txt" | tee line | sed "s:$G/::g"
$(sed 's/.*: convert it with \(.*\) and give .*/\1/' line) --quiet
cmp start-tp2pp2/iter_*/rank_00000_model.safetensors \
  megatron-start/iter_*/rank_00000_model.safetensors && echo "the command makes the start"
refused --num-layers 1 --hidden-size 8 --num-attention-heads 1 --seq-length 8 --vocab-size 9 \
  --save megatron
megatron-to-hf --to trainer --input "$GOLDEN/convert/torch_dist/llama_tp2" --output llama \
  --vocab-size 263
generate --load llama --vocab-file "$G/vocab.json" --merge-file "$G/merges.txt" \
  --prompt "the cat" --max-new-tokens 3 --greedy --device cpu >text 2>err && wc -l <text
sed "s:$G/::g" err
