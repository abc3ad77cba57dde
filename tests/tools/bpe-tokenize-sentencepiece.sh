# SentencePiece models, the tokenizer.json made of one, tekken.json and TikTokenizer's list, through
# bpe-tokenize by Megatron's types and back through inspect-dataset. The same ids by the libraries:
# tests/tok/sentencepiece_test.cc.
set -u
S=$GOLDEN/tok/sentencepiece
printf '{"text": " The cat\\u2581sat, 12 \\u732b\\u00e9 </s> on <EOD> it.\\n"}\n' >in.jsonl
printf '{"text": "and"}\n' >>in.jsonl
show() { # NAME MODEL [FLAG...]
  local name=$1 model=$2; shift 2
  echo "- $name"
  bpe-tokenize -q --input in.jsonl --output-prefix "$name" --append-eod \
    --tokenizer-model "$S/$model" "$@" 2>&1 | sed "s|$S/||"
  [ -e "${name}_text_document.bin" ] || return
  inspect-dataset peek "${name}_text_document" --ids --count 2
  inspect-dataset peek "${name}_text_document" --tokenizer-model "$S/$model" --count 2 \
    2>&1 | sed "s|$S/||"
}
show plain llama.model
show llama2 llama.model --tokenizer-type Llama2Tokenizer
show no-bos llama.model --tokenizer-type Llama2Tokenizer --tokenizer-hf-no-include-special-tokens
show megatron llama.model --tokenizer-type SentencePieceTokenizer
show hugging-face llama.json --tokenizer-type HuggingFaceTokenizer
show gemma gemma.model --tokenizer-type GPTSentencePieceTokenizer
show unknown nfkc.model
show tekken tekken.json
echo "- nemotron"
list=(--tokenizer-model "$S/nemotron.json" --tiktoken-num-special-tokens 10 --vocab-size 1000)
bpe-tokenize -q --input in.jsonl --output-prefix list --append-eod --tokenizer-type TikTokenizer \
  --tiktoken-pattern v1 "${list[@]}"
inspect-dataset peek list_text_document --ids --count 2
inspect-dataset peek list_text_document "${list[@]}" --count 2
echo "- refused"
show no-pattern nemotron.json
show blanks llama.model --no-tokenizer-sentencepiece-ignore-extra-whitespaces
show not-one llama.json --tokenizer-type Llama2Tokenizer
# Flags for another kind of file, and a file that a list of values took.
show encoding tekken.json --tiktoken-encoding cl100k_base
show more llama.model --tokenizer-special-tokens "<x>"
show eod llama.model --eod-token "<x>"
echo "- idle, as in Megatron"
idle() { # MODEL FLAG...
  bpe-tokenize --count --no-pad-vocab-size --input in.jsonl --tokenizer-model "$S/$1" "${@:2}" \
    2>&1 >/dev/null | head -n -1
}
idle llama.model --vocab-size 1501 --null-tokenizer-eod-id 3
idle llama.model --vocab-size 1500
idle tekken.json --tiktoken-num-special-tokens 10
idle llama.json --tiktoken-special-tokens A B --tiktoken-pattern v1
bpe-tokenize -q --count --tokenizer-model "$S/nemotron.json" --tiktoken-pattern v1 \
  --tiktoken-special-tokens A B in.jsonl </dev/null
bpe-tokenize -q --count --tokenizer-model "$S/tekken.json" --workers-to-check 1 2 \
  in.jsonl </dev/null
echo "- tekken.json that begins with empty lines"
{ printf '\n{\n'; tail -c +2 "$S/tekken.json"; } >spaced.json
for model in spaced.json "$S/tekken.json"; do
  bpe-tokenize -q --count --tokenizer-model "$model" in.jsonl
done | uniq -c
printf '\n\011\n\005<unk>\030\002' >unigram.model
bpe-tokenize -q --input in.jsonl --output-prefix unigram --tokenizer-model unigram.model
echo "- a folder with a model, as the hub has Llama-2"
mkdir hub && cp "$S/llama.model" hub/tokenizer.model
printf '{"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", %s}' \
  '"add_bos_token": true' >hub/tokenizer_config.json
bpe-tokenize -q --input in.jsonl --output-prefix hub --tokenizer-model hub \
  --tokenizer-type HuggingFaceTokenizer --append-eod
inspect-dataset peek hub_text_document --ids --count 2
