# The null tokenizer's texts are numbers: anything else is a bad record with its place, which
# can be skipped and kept.
. "$(dirname "$0")/prelude"
null="--tokenizer-type NullTokenizer --vocab-size 100 --no-pad-vocab-size"
printf '{"text":"1 2"}\n{"text":"3 x 4"}\n{"text":"5"}\n{"text":["6","100"]}\n' >in.jsonl
run bpe-tokenize $null --input in.jsonl -o out
run bpe-tokenize $null --input in.jsonl -o out --on-error quarantine -w 2
cat out.quarantine
od -An -tu2 -v out_text_document.bin
left
