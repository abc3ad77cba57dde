# A prefix that ends in a slash, and one that is also a folder's name, give the names that
# Megatron's preprocess_data.py gives; no output is hidden. A folder that does not exist is one
# line.
. "$(dirname "$0")/prelude"
mkdir d e f g
echo mine >g/quarantine
printf '{"text":"one"}\n{"text":2}\n' >in.jsonl
tokenize() { bpe-tokenize -q $VOCAB --on-error quarantine --input in.jsonl -o "$@"; }
run tokenize d/
run tokenize e
run tokenize f/ --shard-tokens 100
run tokenize none/ 2>&1
printf '{"text":"one"}\n' | run bpe-tokenize -q $VOCAB --on-error quarantine --force -o g/ -
left
cmp d/_text_document.bin e_text_document.bin && cat d/_text_document.quarantine g/quarantine
