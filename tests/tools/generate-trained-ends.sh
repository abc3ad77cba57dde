# A text ends with the token that ended the training's documents, also where only the type of
# tokenizer knows it: <EOD>, which SentencePieceTokenizer adds to the file's tokens.
set -u
MODEL="--tokenizer-model $GOLDEN/tok/sentencepiece/llama.model"
for i in $(seq 400); do echo '{"text": "Hello world"}'; done >lines.jsonl
for type in SentencePieceTokenizer Llama2Tokenizer; do
  bpe-tokenize --input lines.jsonl --output-prefix $type --append-eod --quiet \
    --tokenizer-type $type $MODEL
  trainer --num-layers 1 --hidden-size 32 --num-attention-heads 2 --seq-length 16 \
    --micro-batch-size 8 --train-iters 100 --lr 1e-2 --eval-iters 0 --split 100,0,0 --device cpu \
    --tokenizer-type $type $MODEL --data-path ${type}_text_document --save $type.save --quiet \
    >log 2>err || cat log err
  echo "-- $type"
  generate --load $type.save --prompt Hello --max-new-tokens 8 --greedy --device cpu
  generate --load $type.save --prompt Hello --max-new-tokens 8 --greedy --device cpu --ignore-eod |
    wc -w
done
