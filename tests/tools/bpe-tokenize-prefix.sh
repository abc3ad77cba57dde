# A prefix that ends in a slash, and one that is also a folder's name, give the names that
# Megatron's preprocess_data.py gives; no output is hidden. A folder that does not exist is one
# line.
. "$(dirname "$0")/prelude"
mkdir d e f
printf '{"text":"one"}\n{"text":2}\n' >in.jsonl
tokenize() { bpe-tokenize -q $VOCAB --on-error quarantine --input in.jsonl -o "$@"; }
run tokenize d/
run tokenize e
run tokenize f/ --shard-tokens 100
run tokenize none/ 2>&1
left
cmp d/_text_document.bin e_text_document.bin && cat d/quarantine
