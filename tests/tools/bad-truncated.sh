# Packed input cut short at several places is an error with the byte, and nothing is left.
. "$(dirname "$0")/prelude"
for end in gz bz2 xz zst; do
  for bytes in 20 300 700; do
    head -c $bytes "$GOLDEN/tools/lines.jsonl.$end" >in.$end
    readers in.$end
  done
  head -c -1 "$GOLDEN/tools/lines.jsonl.$end" >in.$end
  readers in.$end
done
