# A lone surrogate is an error in the text, but not in a key that is not read.
. "$(dirname "$0")/prelude"
printf '{"text":"good"}\n{"text":"x\\ud83dx"}\n' >in.jsonl
readers in.jsonl
printf '{"title":"x\\ud83dx","text":"good"}\n' >in.jsonl
readers in.jsonl
cat out.jsonl
