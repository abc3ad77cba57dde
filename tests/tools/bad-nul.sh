# A NUL byte in a line is malformed JSON; an escaped one is text, which -0 cannot frame.
. "$(dirname "$0")/prelude"
printf '{"text":"good"}\n{"text":"a\0b"}\n' >in.jsonl
readers in.jsonl
printf '{"text":"a\\u0000b"}\n' >in.jsonl
readers in.jsonl
cat out.jsonl
rm -r out*
run json-extract -0 -o out.txt in.jsonl
run json-extract -0 --control-chars remove -o out.txt in.jsonl
tr '\0' '$' <out.txt
