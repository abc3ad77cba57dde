# An existing output is not touched unless --force says so.
. "$(dirname "$0")/prelude"
printf '{"text":"good"}\n' >in.jsonl
readers in.jsonl >/dev/null 2>&1
before=$(cat out.* out_* out.vocab/* 2>/dev/null | sha256sum)
readers in.jsonl
[ "$before" = "$(cat out.* out_* out.vocab/* 2>/dev/null | sha256sum)" ] && echo 'untouched'
run json-extract -f -o out.jsonl in.jsonl
run bpe-tokenize -f -o out $VOCAB --input in.jsonl
