# A model's tokenizer and the ids of its configs go from a Hugging Face folder into a checkpoint,
# through training, and back: every file byte for byte, every id as the source states it. What
# transformers makes of such folders is compared by tests/reference/judge_tokenizer_folders.py.
set -u
G=$GOLDEN/convert/gpt2
megatron-to-hf --quiet --input "$G/v3.pt" --output base \
  --vocab-file "$G/vocab.json" --merge-file "$G/merges.txt"
ids() {
  tr -d ' \n' <"$1" | grep -oE '"(bos|eos|pad)_token_id":(\[[^]]*\]|[^,}]*)' | tr '\n' ' '
  echo
}
# source NAME: the model of base without its tokenizer, with ids of its own.
source_folder() {
  cp -r base "$1"
  rm "$1"/tokenizer* "$1"/special_tokens_map.json "$1"/vocab.json "$1"/merges.txt
  sed -i 's/"bos_token_id": 260/"bos_token_id": 1/
    s/"eos_token_id": 260/"eos_token_id": [2, 3], "pad_token_id": 0/' "$1/config.json"
  printf '{"bos_token_id": 1, "eos_token_id": [2, 3], "pad_token_id": 0, "top_p": 0.9}' \
    >"$1/generation_config.json"
}
# Compares a folder with its source: weights, tokenizer, configs' ids.
same() {
  for f in "$1"/*; do
    case $f in */config.json) continue ;; esac
    cmp "$f" "$2/${f##*/}"
  done
  [ "$(ls "$1")" = "$(ls "$2")" ] || ls "$1" "$2"
  [ "$(ids "$1/config.json")" = "$(ids "$2/config.json")" ] ||
    { echo "ids differ"; ids "$2/config.json"; }
  echo "$2: compared"
}
train() { # FROM TO STEPS [FLAG...]
  local from=$1 to=$2 steps=$3; shift 3
  trainer --load "$from" --use-checkpoint-args --save "$to" \
    --data-path "${DATA:-ids}_text_document" --split 100,0,0 --micro-batch-size 1 --lr 1e-3 \
    --train-iters "$steps" --eval-iters 0 --device cpu --override-opt_param-scheduler "$@" \
    >"log" 2>&1 || cat log
}
seq 40 | sed 's/.*/{"text": "5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20"}/' >ids.jsonl
bpe-tokenize -q --input ids.jsonl --output-prefix ids --tokenizer-type NullTokenizer \
  --vocab-size 100

echo "- as the hub has OPT: a pair, names, and files of which nothing is understood"
source_folder opt
cp "$G/vocab.json" "$G/merges.txt" opt
printf '{"bos_token": "a", "eos_token": {"content": "b"}, "add_bos_token": true, %s}' \
  '"tokenizer_class": "GPT2Tokenizer"' >opt/tokenizer_config.json
printf '{"bos_token": "a",\n "eos_token": "b"}\n' >opt/special_tokens_map.json
printf '{"<t>": 261}' >opt/added_tokens.json
printf '\0\1' >opt/tokenizer.model
echo '{{ messages }}' >opt/chat_template.jinja
hf-to-megatron --input opt --output start/opt
megatron-to-hf --input start/opt --output back/opt; same opt back/opt
megatron-to-hf --input start/opt/iter_0000000 --output back/opt-iteration
same opt back/opt-iteration
for layout in legacy core; do
  hf-to-megatron --input opt --output "meg/$layout" --to megatron --layout $layout
  megatron-to-hf --input "meg/$layout" --output "back/$layout"; same opt "back/$layout"
done
megatron-to-hf --input meg/core/release/mp_rank_00/model_optim_rng.pt --output back/file
same opt back/file
echo "- trained and resumed, where the start is gone"
train start/opt tuned 1 --finetune
train tuned more 2
mv start/opt start/moved
megatron-to-hf --input more --output back/more
cp back/more/model.safetensors opt; same opt back/more
echo "- a model alone"
source_folder bare
hf-to-megatron --input bare --output start/bare
megatron-to-hf --input start/bare --output back/bare 2>&1 | sed "s|$WORK/||"; same bare back/bare
train start/bare tuned-bare 1 --finetune
megatron-to-hf --input tuned-bare --output back/tuned-bare --quiet; ids back/tuned-bare/config.json
echo "- documents that ended otherwise than the export says"
bpe-tokenize -q --input ids.jsonl --output-prefix ends --tokenizer-type NullTokenizer \
  --vocab-size 100 --append-eod
DATA=ends train start/bare ended 1 --finetune
megatron-to-hf --input ended --output back/ended 2>&1 | grep ended
echo "- what is there is not replaced"
echo mine >meg/core/tokenizer/chat_template.jinja
hf-to-megatron --input opt --output meg/core --to megatron --layout core 2>&1
cat meg/core/tokenizer/chat_template.jinja
hf-to-megatron --input opt --output one.pt --to megatron 2>&1
echo "- over another model's folder"
megatron-to-hf --input start/moved --output base --force
same back/opt base
echo "- what is made keeps to the model's positions"
megatron-to-hf --quiet --input "$G/v3.pt" --output made \
  --vocab-file "$G/vocab.json" --merge-file "$G/merges.txt"
grep -h '_length"' made/generation_config.json made/tokenizer_config.json
rm bare/generation_config.json
hf-to-megatron --input bare --output start/made
megatron-to-hf --quiet --input start/made --output back/made
ids back/made/generation_config.json
grep -h '_length"' back/made/*.json
echo "- a tokenizer that cannot be followed does not stop training on ids"
source_folder llama
cat >llama/tokenizer.json <<'END'
{"added_tokens": [{"id": 1, "content": "<s>"}, {"id": 2, "content": "</s>"}],
 "normalizer": {"type": "Prepend", "prepend": "x"},
 "model": {"type": "BPE", "vocab": {"<s>": 1, "</s>": 2}, "merges": []}}
END
printf '{"tokenizer_class": "LlamaTokenizer", "eos_token": "</s>"}' >llama/tokenizer_config.json
hf-to-megatron --input llama --output start/llama
train start/llama tuned-llama 1 --finetune --eod-mask-loss
sed "s|$WORK/||g" log | grep 'reads ids'
train start/llama tuned-null 1 --finetune --tokenizer-type NullTokenizer --vocab-size 261
grep -c 'reads ids' log
train start/llama tuned-named 1 --finetune --tokenizer-type NullTokenizer --tokenizer-model llama \
  --vocab-size 261
megatron-to-hf --quiet --input tuned-null --output back/null
cp back/null/model.safetensors llama; same llama back/null
echo "- a tokenizer's file that the checkpoint names, whatever is beside it, and when it is gone"
mkdir named; printf '{"tokenizer_class": "GPT2Tokenizer"}' >named/tokenizer_config.json
cp "$GOLDEN/tok/sentencepiece/llama.model" named/own.model
cp "$GOLDEN/tok/sentencepiece/llama.json" named/tokenizer.json
small="--num-layers 1 --hidden-size 32 --num-attention-heads 2 --seq-length 16 --eval-iters 0
  --max-position-embeddings 16 --micro-batch-size 1 --lr 1e-3 --train-iters 1 --device cpu
  --data-path ids_text_document --split 100,0,0"
trainer $small --tokenizer-type SentencePieceTokenizer --tokenizer-model named/own.model \
  --save spm >log 2>&1 || cat log
trainer $small --tokenizer-type HuggingFaceTokenizer --tokenizer-model named/tokenizer.json \
  --save json >log 2>&1 || cat log
for what in there gone; do
  for from in spm json; do
    megatron-to-hf --quiet --input $from --output back/$from-$what 2>&1 | sed "s|$WORK/||g"
    echo "$from, $what:" $(ls back/$from-$what)
  done
  [ $what = gone ] || rm named/own.model named/tokenizer.json
done
train json tuned-gone 1 --finetune && grep 'reads ids' log | sed "s|$WORK/||g"
train json tuned-wrong 1 --finetune --tokenizer-model nowhere | sed "s|$WORK/||g"
