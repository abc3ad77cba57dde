# Bad records first, last and at chunk borders: skipped, counted by kind, the others in order
# for any number of workers.
. "$(dirname "$0")/prelude"
{
  echo 'no json'
  for i in $(seq 30000); do
    echo '{"text":"document '$i'"}'
    [ $((i % 6000)) != 0 ] || echo '{"other":1}'
  done
  printf '{"text":1}'
} >in.jsonl
run json-extract --on-error skip -w 1 -o out.1 in.jsonl
for workers in 2 5; do
  run json-extract --on-error skip -w $workers -o out.$workers in.jsonl 2>/dev/null
  cmp out.1 out.$workers
done
run bpe-tokenize $VOCAB --on-error skip -w 2 -o out in.jsonl
wc -l <out.1
rm out.*
