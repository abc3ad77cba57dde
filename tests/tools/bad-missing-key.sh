# A key that is not there is an error, never an empty document.
. "$(dirname "$0")/prelude"
printf '{"text":"good","title":"t"}\n{"content":"other"}\n' >in.jsonl
readers in.jsonl
run json-extract --json-keys title text -o out.jsonl in.jsonl
left
