# Families that differ from Llama in a few rows, and OPT-350m, from Megatron's flags to a folder of
# transformers and back: trained, resumed bit for bit, resharded, exported as what they are,
# verified, read again, generated from. And what is said of a model that no family holds.
set -u
G=$GOLDEN/convert/gpt2
for i in $(seq 60); do
  echo "{\"text\": \"the cat sat on the mat $i and the dog saw it\"}"
done >lines.jsonl
bpe-tokenize --input lines.jsonl --output-prefix lines \
  --vocab-file "$G/vocab.json" --merge-file "$G/merges.txt" --append-eod --quiet
llama="--num-query-groups 2 --group-query-attention --position-embedding-type rope
  --normalization RMSNorm --swiglu --untie-embeddings-and-output-weights"
like=$llama
train() { # FOLDER FLAG...
  to=$1
  shift
  trainer --save "$to" --data-path lines_text_document --split 90,10,0 \
    --vocab-file "$G/vocab.json" --merge-file "$G/merges.txt" \
    --num-layers 2 --hidden-size 16 --num-attention-heads 4 --seq-length 16 $like \
    --attention-dropout 0 --hidden-dropout 0 --micro-batch-size 2 --global-batch-size 4 \
    --lr 1e-2 --lr-decay-style constant --train-iters 4 --save-interval 2 \
    --log-interval 1 --eval-iters 0 --device cpu --cpu-threads 1 "$@" >"$to.log" 2>&1 ||
    cat "$to.log"
}
try() { # NAME FLAG...
  name=$1
  shift
  echo "--- $name: $*"
  train "$name" "$@"
  megatron-to-hf --quiet --input "$name" --output "$name-hf" --verify "the cat sat on the mat" &&
    grep model_type "$name-hf/config.json"
  train "$name-on" --load "$name" --ckpt-step 2 "$@"
  megatron-to-hf --quiet --input "$name-on" --output "$name-on-hf"
  cmp "$name-hf/model.safetensors" "$name-on-hf/model.safetensors" && echo resumed bit for bit
  train "$name-parts" --load "$name" --ckpt-step 2 --nproc-per-node 4 \
    --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 "$@"
  for log in "$name" "$name-parts"; do
    sed -n 's/.* iteration *\([0-9]*\).*lm loss: \([0-9.]*\)E.*/\1 \2/p' "$log.log" |
      tail -1 | cut -c1-7
  done | uniq -c | awk '{print $1, "runs end in one loss"}'
  hf-to-megatron --quiet --input "$name-hf" --output "$name-again" &&
    megatron-to-hf --quiet --input "$name-again" --output "$name-again-hf"
  cmp "$name-hf/model.safetensors" "$name-again-hf/model.safetensors" &&
    cmp "$name-hf/config.json" "$name-again-hf/config.json" && echo there and back
  generate --load "$name-hf" --prompt "the cat" --max-new-tokens 20 --greedy --ignore-eod \
    --device cpu >text
  generate --load "$name-again" --prompt "the cat" --max-new-tokens 20 --greedy --ignore-eod \
    --device cpu | cmp - text && echo the same text
}
try qwen2 --disable-bias-linear --add-qkv-bias
try qwen3 --disable-bias-linear --qk-layernorm --kv-channels 6
try mistral --disable-bias-linear --window-size "(2,0)"
try llama-biases --attention-bias --kv-channels 6 \
  --use-rope-scaling --rope-original-max-position-embeddings 8
try llama-linear --disable-bias-linear --mlp-bias --rotary-seq-len-interpolation-factor 2 \
  --model-family llama
like=
try opt-350m --post-norm --embedding-size 12 --activation relu --position-offset 2 \
  --max-position-embeddings 40
like=$llama
echo "--- another model"
train other --load mistral --disable-bias-linear | grep -o "the model's .*"
# The checkpoint is older than the field.
trainer --load "$G/../whole_job/llama/checkpoint" --use-checkpoint-args --finetune \
  --tokenizer-type NullTokenizer --qk-layernorm --data-path lines_text_document \
  --micro-batch-size 1 --lr 1 --train-iters 1 --device cpu 2>&1 | grep -o "the model's .*"
echo "--- none"
train none --disable-bias-linear --qk-layernorm --add-qkv-bias
grep -h "no family" none.log
megatron-to-hf --quiet --input none --output none-hf 2>&1 | grep -o "qwen2: [^;]*"
