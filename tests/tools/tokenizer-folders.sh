# bpe-tokenize on folders as the hub has them: which token ends documents, which are put around
# texts, what a special token in a text becomes for each type, and the messages about it. The ids
# themselves are compared with transformers' in tests/tok.
set -u
vocab=$GOLDEN/tools/vocab.json merges=$GOLDEN/tools/merges.txt
folder() {
  mkdir -p "$1"
  cp "$vocab" "$1/vocab.json"
  cp "$merges" "$1/merges.txt"
  printf '%s' "$2" >"$1/tokenizer_config.json"
}
printf '%s\n' '{"text": "the<|"}' '{"text": "<|endoftext|>the"}' >in.jsonl
# Prints the tokens of both documents, and the messages.
ids() {
  bpe-tokenize --input in.jsonl --output-prefix out --force --no-pad-vocab-size --append-eod "$@" \
    2>said
  echo "exit $?"; sed "s|$WORK/||g; s| in = .*text; |: |; s| in = .*text$||" said
  od -An -td2 -v out_text_document.bin | tr -s ' \n' ' '; echo
}

echo "- the folder's eos ends documents; Megatron's own type ends them with <|endoftext|>"
folder opt '{"tokenizer_class": "GPT2Tokenizer",
  "bos_token": "<|", "eos_token": "<|", "add_bos_token": true}'
ids --tokenizer-model opt
ids --vocab-file opt/vocab.json --merge-file opt/merges.txt
ids --vocab-file opt/vocab.json --merge-file opt/merges.txt --tokenizer-type GPT2BPETokenizer
ids --tokenizer-model opt --eod-token "<|endoftext|>"
echo "- Hugging Face's types parse special tokens and put the BOS before each text"
ids --tokenizer-model opt --tokenizer-type HuggingFaceTokenizer
ids --tokenizer-model opt --tokenizer-type HuggingFaceTokenizer --special-tokens-in-text text \
  --tokenizer-hf-no-include-special-tokens
ids --tokenizer-model opt --tokenizer-type HFGPT2Tokenizer
folder split '{"tokenizer_class": "GPT2Tokenizer", "split_special_tokens": true}'
ids --tokenizer-model split --tokenizer-type HuggingFaceTokenizer
echo "- -q says it too"
bpe-tokenize -q --input in.jsonl --output-prefix out --force \
  --vocab-file "$vocab" --merge-file "$merges" 2>&1
bpe-tokenize -q --input in.jsonl --output-prefix out --force --tokenizer-model opt \
  --tokenizer-type HFTokenizer 2>&1
head -1 in.jsonl | bpe-tokenize -q --output-prefix out --force \
  --vocab-file "$vocab" --merge-file "$merges" 2>&1
echo "- versions that differ, and what cannot be followed"
folder both '{"tokenizer_class": "GPT2Tokenizer", "add_bos_token": true, "add_eos_token": true}'
ids --tokenizer-model both --tokenizer-type HuggingFaceTokenizer
folder bart '{"tokenizer_class": "BartTokenizer"}'
bpe-tokenize --input in.jsonl --output-prefix x --tokenizer-model bart 2>&1
folder far '{"tokenizer_class": "GPT2Tokenizer",
  "added_tokens_decoder": {"1300": {"content": "<t>"}}}'
bpe-tokenize --input in.jsonl --output-prefix x --tokenizer-model far 2>&1
[ -z "$(ls x* 2>/dev/null)" ]
