# A lone surrogate in the text is an error, in a key that is not read it is none.
. "$(dirname "$0")/prelude"
printf '{"text":"good"}\n{"text":"x\\ud83dx"}\n' >in.jsonl
readers in.jsonl
printf '{"title":"x\\ud83dx","text":"good"}\n' >in.jsonl
readers in.jsonl
cat out.jsonl
