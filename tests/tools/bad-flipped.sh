# One bit flipped in the middle of packed input is an error, and nothing is left.
. "$(dirname "$0")/prelude"
for end in gz bz2 xz zst; do
  cp "$GOLDEN/tools/lines.jsonl.$end" in.$end
  byte=$(od -An -tu1 -j 700 -N 1 in.$end)
  printf "\\x$(printf %x $((byte ^ 16)))" | dd of=in.$end bs=1 seek=700 conv=notrunc status=none
  readers in.$end
done
cat "$GOLDEN/tools/lines.jsonl.gz" >in.gz
echo trailing >>in.gz
readers in.gz
