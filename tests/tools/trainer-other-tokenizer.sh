# A run that goes on with another tokenizer than its checkpoint's says so, also where a conversion
# left it, and nothing where it is the same one, under other names too.
set -u
mkdir a b copy
cp "$GOLDEN/convert/gpt2/vocab.json" "$GOLDEN/convert/gpt2/merges.txt" a
cp a/* copy
sed 's/"%": 4,/"%": 5,/; s/"&": 5,/"\&": 4,/' a/vocab.json >b/vocab.json
cp a/merges.txt b
cmp -s a/vocab.json b/vocab.json && echo "the vocabularies are the same"
for i in $(seq 60); do
  echo "{\"text\": \"the cat sat on the mat $i and the dog saw it\"}"
done >lines.jsonl
bpe-tokenize --input lines.jsonl --output-prefix lines --vocab-file a/vocab.json \
  --merge-file a/merges.txt --no-manifest --quiet
run() {
  name=$1 && shift
  trainer --num-layers 1 --hidden-size 8 --num-attention-heads 1 --seq-length 8 --train-iters 2 \
    --micro-batch-size 2 --lr 1e-3 --eval-iters 0 --split 100,0,0 --device cpu \
    --data-path lines_text_document "$@" >log 2>err || cat log err
  echo "-- $name"
  grep tokenizer err | sed "s:$WORK/::"
}
of() { echo "--vocab-file $1/vocab.json --merge-file $1/merges.txt"; }
run "the first" $(of a) --save out
run "a copy" $(of copy) --load out
run "another" $(of b) --load out
run "another, two ranks" $(of b) --load out --nproc-per-node 2 --global-batch-size 2 \
  --micro-batch-size 1
run "another, planned" $(of b) --load out --dry-run
run "another, for its weights" $(of b) --pretrained-checkpoint out
run "none" --vocab-size 261 --load out
# What a conversion leaves beside a checkpoint that names no tokenizer.
megatron-to-hf --quiet --input out --output hf
hf-to-megatron --quiet --input hf --output start
run "the start's" $(of copy) --load start --finetune
run "another than the start's" $(of b) --load start --finetune
run "a run without" --vocab-size 261 --save bare
# Text from a model with another tokenizer than its own: by the hash, where it was trained with one;
# by the tokenizer beside it; by the number of tokens, where there is none.
text() {
  echo "-- text: $1" && shift
  generate --prompt "the cat" --max-new-tokens 1 --device cpu "$@" 2>&1 >text | sed "s:$WORK/::"
}
text "its own" --load out
text "a copy" --load out $(of copy)
text "another" --load out $(of b)
text "the start's" --load start
text "another than the start's" --load start $(of b)
text "another than the folder's" --load hf $(of b)
text "as many tokens" --load bare $(of b)
mkdir small
sed 's/, "<|endoftext|>": 260//' a/vocab.json >small/vocab.json && cp a/merges.txt small
text "fewer tokens" --load bare $(of small)
# The same of exports, which otherwise write another model's tokenizer.
export_of() {
  echo "-- export: $1" && shift
  megatron-to-hf --output exported --force "$@" 2>&1 | grep tokens | sed "s:$WORK/::"
}
export_of "its own" --input out
export_of "a copy" --input out $(of copy)
export_of "another" --input out $(of b)
export_of "the start's" --input start
export_of "another than the start's" --input start $(of b)
export_of "as many tokens" --input bare $(of b)
export_of "fewer tokens" --input bare $(of small)
# A conversion into the trainer's own form keeps the hash where it finds no tokenizer to copy.
mv a gone
megatron-to-hf --quiet --to trainer --input out --output again --vocab-size 261
mv gone a && ls again
run "the converted one's" $(of copy) --load again --finetune
run "another than the converted one's" $(of b) --load again --finetune
cp b/vocab.json a
text "what was its own" --load out
export_of "what was its own" --input out
# With a --tokenizer-type, training reads a pair without its folder's configuration, and adds tokens
# to a SentencePiece model: the files are the same ones all the same.
mkdir hub && cp copy/* hub
echo '{"add_prefix_space": true, "tokenizer_class": "GPT2Tokenizer"}' >hub/tokenizer_config.json
run "typed" $(of hub) --tokenizer-type GPT2BPETokenizer --save typed
text "typed" --load typed
export_of "typed" --input typed
cp "$GOLDEN/tok/sentencepiece/llama.model" .
run "pieces" --tokenizer-model llama.model --tokenizer-type SentencePieceTokenizer --save pieces
text "pieces" --load pieces
export_of "pieces" --input pieces
