# hf-to-megatron(1)'s example: a folder of transformers becomes a checkpoint, is trained without any
# flag about the model, and becomes a folder again. The trained weights differ, the shape does not.
set -u
G=$GOLDEN/convert/gpt2
megatron-to-hf --quiet --input "$G/v3.pt" --output hf \
  --vocab-file "$G/vocab.json" --merge-file "$G/merges.txt"
for i in $(seq 60); do
  echo "{\"text\": \"the cat sat on the mat $i and the dog saw it\"}"
done >lines.jsonl
bpe-tokenize --input lines.jsonl --output-prefix lines \
  --vocab-file hf/vocab.json --merge-file hf/merges.txt --append-eod --quiet
hf-to-megatron --input hf --output start
trainer --load start --use-checkpoint-args --finetune --save tuned \
  --data-path lines_text_document --split 90,10,0 --micro-batch-size 2 --lr 1e-3 \
  --train-iters 4 --log-interval 1 --eval-iters 0 --device cpu >log || cat log
grep -cE ' iteration +[0-9]+/' log
keys='num-layers|hidden-size|num-attention-heads|seq-length|max-position-embeddings|activation'
grep -E "^($keys) =" log
megatron-to-hf --input tuned --output tuned-hf
cmp hf/config.json tuned-hf/config.json && cmp hf/tokenizer.json tuned-hf/tokenizer.json &&
  echo the same model
cmp -s hf/model.safetensors tuned-hf/model.safetensors || echo other weights
generate --load tuned-hf --prompt "the cat" --max-new-tokens 3 --greedy --device cpu >text &&
  wc -l <text
