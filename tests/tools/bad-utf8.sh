# Bytes that are not UTF-8: in the text, in another key, overlong, an encoded surrogate.
. "$(dirname "$0")/prelude"
for bytes in '\xff' '\xc0\x80' '\xed\xa0\x80' '\xf4\x90\x80\x80' '\xe2\x82'; do
  printf '{"text":"good"}\n{"text":"a'"$bytes"'b"}\n' >in.jsonl
  readers in.jsonl
done
printf '{"title":"\x80","text":"good"}\n' >in.jsonl
readers in.jsonl
printf 'good\0b\xe9d\0' >in.txt
run bpe-tokenize -0 -o out $VOCAB in.txt
left
