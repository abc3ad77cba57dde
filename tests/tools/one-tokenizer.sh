# The same flags name the same tokenizer to every program, or all refuse them with one line. For
# each line of flags: what bpe-tokenize writes is compared with the tokenizer of inspect-dataset and
# of the trainer, by the manifest's identity.
set -u
T=$GOLDEN/tools S=$GOLDEN/tok/sentencepiece
mkdir folder hub json other empty broken
cp "$T/vocab.json" "$T/merges.txt" folder
cp "$T/vocab.json" "$T/merges.txt" hub
printf '{"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|"}' >hub/tokenizer_config.json
cp "$S/llama.json" json/tokenizer.json
cp "$S/llama.json" other/20B_tokenizer.json
cp "$S/llama.model" llama.model
cp "$S/nemotron.json" "$S/tekken.json" .
printf '{' >broken/tokenizer.json
# 256 bytes, as tiktoken packs them.
for i in $(seq 0 255); do
  printf '%s %d\n' "$(printf "\\$(printf %03o "$i")" | base64)" "$i"
done >gpt2.tiktoken
gzip -k gpt2.tiktoken
cp llama.model packed.model; gzip packed.model
head -c 2000 packed.model.gz >cut.gz
printf '{"text": "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"}\n' >in.jsonl
for i in $(seq 8); do cat in.jsonl; done >lines.jsonl
bpe-tokenize -q --input lines.jsonl --output-prefix fixed --vocab-file folder/vocab.json \
  --merge-file folder/merges.txt 2>/dev/null

model="--num-layers 1 --hidden-size 8 --num-attention-heads 1 --seq-length 8 --train-iters 2
  --micro-batch-size 2 --lr 1e-3 --eval-iters 0 --split 100,0,0 --device cpu --dry-run"
# What a program says of the flags: its refusal, or that the dataset's tokenizer is another one.
said() { # PROGRAM, from standard input
  sed -n "s|^$1: ||; /differs from/{s/.*/another tokenizer/;p;d}; $2"
}
check() { # FLAG...
  echo "- $*"
  rm -f out_text_document.*
  data=fixed_text_document
  if bpe-tokenize --input lines.jsonl --output-prefix out --no-pad-vocab-size "$@" 2>err; then
    data=out_text_document; tokenized=
    sed -n 's/^bpe-tokenize: //; / in = /d; / special token/d; /^ *$/d; /no effect/p' err
  else
    tokenized=$(said bpe-tokenize p <err)
  fi
  seen=$(inspect-dataset peek $data --count 1 "$@" 2>&1 >/dev/null |
    said inspect-dataset '/no effect/d; p')
  if ! trainer $model --data-path $data "$@" >log 2>err; then
    trained=$(said trainer p <err)
  else
    trained=$(said trainer '' <err)
  fi
  if [ "$tokenized" = "$seen" ] && [ "$seen" = "$trained" ]; then
    echo "${tokenized:-the same tokenizer}"
  else
    printf 'bpe-tokenize: %s\ninspect-dataset: %s\ntrainer: %s\n' "${tokenized:-took it}" \
      "${seen:-took it}" "${trained:-took it}"
  fi
}
echo "== files"
check --vocab-file folder/vocab.json --merge-file folder/merges.txt
check --vocab-file hub/vocab.json --merge-file hub/merges.txt
check --vocab-file hub/vocab.json --merge-file hub/merges.txt --tokenizer-type GPT2BPETokenizer
check --tokenizer-model hub
check --vocab-file hub
check --tokenizer-model json
check --tokenizer-model json/tokenizer.json
check --vocab-file json/tokenizer.json --tokenizer-type HFTokenizer
check --tokenizer-model other/20B_tokenizer.json
check --tokenizer-model llama.model
check --tokenizer-model llama.model --tokenizer-type SentencePieceTokenizer
check --tokenizer-model packed.model.gz
check --tokenizer-model tekken.json
check --tokenizer-model nemotron.json --tokenizer-type TikTokenizer --tiktoken-pattern v1 \
  --vocab-size 1200 --tiktoken-num-special-tokens 10
check --tokenizer-model nemotron.json --tiktoken-pattern v2 --vocab-size 2000
check --tokenizer-model gpt2.tiktoken
check --vocab-file gpt2.tiktoken.gz --tokenizer-type TiktokenTokenizer
check --tokenizer-name-or-path json --tokenizer-type PretrainedFromHF
check --vocab folder/vocab.json --merges-file folder/merges.txt
echo "== several files: the type says which counts"
both="--tokenizer-model llama.model --vocab-file folder/vocab.json --merge-file folder/merges.txt"
check $both
check $both --tokenizer-type GPT2BPETokenizer
check $both --tokenizer-type HuggingFaceTokenizer
check $both --tokenizer-type GPTSentencePieceTokenizer
check $both --tokenizer-type NullTokenizer --vocab-size 1200
check --tokenizer-model llama.model --merge-file folder/merges.txt
check --vocab-file other/20B_tokenizer.json --merge-file folder/merges.txt \
  --tokenizer-type HFTokenizer
check --vocab-file gpt2.tiktoken --merge-file folder/merges.txt
echo "== sizes"
pair="--vocab-file folder/vocab.json --merge-file folder/merges.txt"
check $pair --tokenizer-type GPT2BPETokenizer --vocab-size 5000
check $pair --vocab-size -1
check --tokenizer-type NullTokenizer --vocab-size -1
check $pair --vocab-size 0
check $pair --tokenizer-type GPT2BPETokenizer --tiktoken-pattern v2 \
  --tiktoken-num-special-tokens 1000
check $pair --tokenizer-type GPT2BPETokenizer --tiktoken-num-special-tokens 10
echo "== refusals"
check --merge-file folder/merges.txt
check --vocab-file folder/vocab.json
check --tokenizer-type NullTokenizer
check --tokenizer-type Gpt2 --tokenizer-model json
check --tokenizer-model nowhere
check --tokenizer-model empty
check --tokenizer-model broken
check --tokenizer-model folder/merges.txt
check --vocab-file folder/merges.txt --merge-file folder/vocab.json
check --tokenizer-model json --tokenizer-type Llama2Tokenizer
check --tokenizer-model nemotron.json --tokenizer-type Llama2Tokenizer
check --tokenizer-model cut.gz
check --tokenizer-model json/tokenizer.json --tiktoken-pattern v3
echo "== only bpe-tokenize encodes texts"
check --tokenizer-model nemotron.json --tokenizer-type TikTokenizer --vocab-size 2000
check $pair --tokenizer-type SFTTokenizer
echo "== that a difference is seen"
for pattern in v1 v2; do
  bpe-tokenize -q --input lines.jsonl --output-prefix $pattern --tokenizer-model nemotron.json \
    --vocab-size 2000 --tiktoken-pattern $pattern
done
alike() { # DATASET FLAG...
  inspect-dataset peek "$1" --count 1 "${@:2}" 2>&1 >/dev/null | said inspect-dataset ''
  trainer $model --data-path "$@" 2>&1 >/dev/null | said trainer ''
}
alike v1_text_document --tokenizer-model nemotron.json --vocab-size 2000 --tiktoken-pattern v2
alike v2_text_document --tokenizer-model nemotron.json --vocab-size 2000 --tiktoken-pattern v2
alike v2_text_document --tokenizer-model hub
