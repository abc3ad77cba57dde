# --max-errors: a count and a fraction.
. "$(dirname "$0")/prelude"
printf '{"text":"a"}\n1\n{"text":"b"}\n2\n{"text":"c"}\n' >in.jsonl
run json-extract --on-error skip --max-errors 1 -o out.jsonl in.jsonl
run json-extract --on-error skip --max-errors 2 -q in.jsonl
run json-extract --on-error skip --max-errors 30% -o out.jsonl in.jsonl
run json-extract --on-error skip --max-errors 40% -q in.jsonl
run json-extract --on-error skip --max-errors x -q in.jsonl
run json-extract --on-error skip --max-errors 101% -q in.jsonl
run json-extract --on-error skip --max-errors 1x% -q in.jsonl
run json-extract --on-error skip --max-errors % -q in.jsonl
run json-extract --on-error skip --max-errors 9% -q in.jsonl
left
