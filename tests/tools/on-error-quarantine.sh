# The quarantine has the bad lines unchanged, so that they can be repaired and read again.
. "$(dirname "$0")/prelude"
printf '{"text":"a"}\nno json\r\n{"text":2}\n{"text":"\xff"}\n{"text":"b"}\n{"te' >in.jsonl
run json-extract --on-error quarantine -o out.jsonl in.jsonl
cat -v out.jsonl out.jsonl.quarantine
run bpe-tokenize $VOCAB --on-error quarantine --quarantine bad -o out in.jsonl
cmp bad out.jsonl.quarantine
run json-extract --on-error quarantine in.jsonl
run json-extract --quarantine bad in.jsonl
left
