# GPT-NeoX's own checkpoints, two tensor ranks of a pipeline: named to the trainer they are refused
# with the command that makes a start of them; the start trains on in another layout, and the folder
# of transformers is the same on both roads.
set -u
G=$GOLDEN/convert/gpt2
VOCAB="--vocab-file $G/vocab.json --merge-file $G/merges.txt"
cp -r "$GOLDEN/convert/neox/parallel_tp2/checkpoints" neox
for i in $(seq 60); do
  echo "{\"text\": \"the cat sat on the mat $i and the dog saw it\"}"
done >lines.jsonl
bpe-tokenize --input lines.jsonl --output-prefix lines $VOCAB --append-eod --quiet
train() {
  trainer "$@" --data-path lines_text_document --split 100,0,0 --micro-batch-size 2 --lr 1e-3 \
    --train-iters 3 --log-interval 1 --eval-iters 0 --device cpu
}
train --load neox --finetune 2>&1 | tail -n 1 | tee line
start=$(sed 's/.* convert it with \(.*\) and give .*/\1/' line)
$start --quiet
echo "without a vocabulary: $?"
$start --quiet $VOCAB
megatron-to-hf --quiet --input neox --output hf $VOCAB --verify "the cat" &&
  megatron-to-hf --quiet --input neox-start --output hf-start
cmp hf/model.safetensors hf-start/model.safetensors && cmp hf/config.json hf-start/config.json &&
  echo "the same folder"
train --load neox-start --use-checkpoint-args --finetune --save tuned --nproc-per-node 2 \
  --tensor-model-parallel-size 2 >log 2>&1 || cat log
grep -cE ' iteration +[0-9]+/' log
megatron-to-hf --quiet --input tuned --output tuned-hf
keys='model_type|rotary_pct|use_parallel_residual|hidden_act|vocab_size'
grep -hE "\"($keys)\"" hf/config.json tuned-hf/config.json
