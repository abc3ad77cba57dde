# A line over the cap is an error at its first byte, and is skipped or quarantined whole on request.
. "$(dirname "$0")/prelude"
{
  printf '{"text":"good"}\n{"text":"'
  head -c 3000000 /dev/zero | tr '\0' x
  printf '"}\n{"text":"after"}\n'
} >in.jsonl
readers in.jsonl --max-line 1M
run json-extract --max-line 1M --on-error skip in.jsonl
run json-extract --max-line 1M --on-error quarantine -o out.jsonl in.jsonl
left
sed -n 2p in.jsonl | cmp - out.jsonl.quarantine && echo 'kept whole'
run json-extract -q --max-line 4M in.jsonl | tail -c 20
# Lines that end with a lone CR are lines, however long all of them are together.
seq -f '{"text":"%07.0f"}' 60000 | tr '\n' '\r' >cr.jsonl
run json-extract --max-line 600000 -o cr.out cr.jsonl
tail -n 1 cr.out
run json-extract --max-line 1k cr.jsonl
