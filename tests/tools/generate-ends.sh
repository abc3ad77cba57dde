# Which tokens end a text: all of generation_config.json's, else config.json's, else the
# tokenizer's. `all` is every token, so that the first one ends the text.
set -u
G=$GOLDEN/convert/gpt2
megatron-to-hf --quiet --input "$G/v3.pt" --output hf \
  --vocab-file "$G/vocab.json" --merge-file "$G/merges.txt"
all="[$(seq -s, 0 260)]"
folder=hf
text() { generate --load $folder --device cpu --greedy --max-new-tokens 3 --prompt it "$@"; }
text --ignore-eod >whole
ends() { # what the two configurations say
  cp -r hf model
  echo "$1" >model/generation_config.json
  sed -i "s/\"eos_token_id\": 260/\"eos_token_id\": $2/" model/config.json
  [ "$1" != none ] || rm model/generation_config.json
  hf-to-megatron --quiet --input model --output run
  for folder in model run; do
    text >out
    if cmp -s out whole; then echo "$folder: goes on"; else cat out; fi
    text --ignore-eod | cmp - whole
  done
  rm -r model run
}
echo "- a list"; ends "{\"eos_token_id\": $all}" 260
echo "- another goes first"; ends '{"eos_token_id": [260, 259]}' "$all"
echo "- a number"; ends '{"eos_token_id": 260}' "$all"
echo "- none there"; ends '{}' "$all"
echo "- no file"; ends none "$all"
echo "- neither"; ends '{}' null
