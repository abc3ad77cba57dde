# A prompt becomes what transformers' tokenizer(prompt) gives: the configuration's BOS before it,
# special tokens in it parsed.
set -u
G=$GOLDEN/convert/gpt2
megatron-to-hf --quiet --input "$G/v3.pt" --output plain \
  --vocab-file "$G/vocab.json" --merge-file "$G/merges.txt"
text() {
  generate --load "$1" --prompt "$2" --no-prompt --max-new-tokens 3 --temperature 2 --seed 5 \
    --ignore-eod --device cpu "${@:3}" | od -An -c
}
same() { [ "$1" = "$2" ] && echo "$3: the same" || echo "$3: others"; }
# folder NAME CONFIGURATION: the model of `plain`, its tokenizer as a pair with this configuration.
folder() {
  cp -r plain "$1" && rm "$1"/tokenizer* "$1"/special_tokens_map.json
  printf '%s' "$2" >"$1/tokenizer_config.json"
}
ends='"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"'
class='"tokenizer_class": "GPT2Tokenizer"'
folder bos "{$ends, \"add_bos_token\": true, $class}"
folder none "{$ends, $class}"
folder split "{$ends, \"split_special_tokens\": true, $class}"
folder other '{"bos_token": "z", "eos_token": "<|endoftext|>", "tokenizer_class": "GPT2Tokenizer"}'
added='"add_bos_token": true, "add_eos_token": true'
folder both "{\"bos_token\": \"z\", \"eos_token\": \"q\", $added, $class}"
marked=$(text none '<|endoftext|>it')
same "$(text bos 'it')" "$marked" "add_bos_token and BOS in the prompt"
same "$(text none 'it')" "$marked" "no add_bos_token"
same "$(text bos 'it' --tokenizer-hf-no-include-special-tokens)" "$(text none 'it')" \
  "BOS left out and no add_bos_token"
same "$(text split '<|endoftext|>')" "$(text none '<|endoftext|>')" "split_special_tokens"
same "$(text both 'it' 2>note)" "$(text none 'zitq')" "both ends and written out"; cat note
same "$(text other '' </dev/null)" "$(text none z)" "an empty prompt and the BOS"
same "$(text none '' </dev/null)" "$(text none '<|endoftext|>')" \
  "an empty prompt and the only special token"
