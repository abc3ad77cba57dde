# `ulimit -f`: a full disk, not a signal that ends the process: one line, status 1,
# nothing under a final name.
. "$(dirname "$0")/prelude"
head -c 300000 /dev/urandom | od -An -v -tx1 | sed 's/.*/{"text":"&"}/' >in.jsonl
(
  ulimit -f 64
  run json-extract -o out.jsonl in.jsonl
  json-extract in.jsonl >in.out
  echo "exit $?"
  run bpe-tokenize $VOCAB -o out --input in.jsonl
)
left
