# A full disk: one line, status 1, nothing under a final name. /dev/full for stdout, a
# small file system for files.
. "$(dirname "$0")/prelude"
head -c 1500000 /dev/urandom | od -An -v -tx1 | sed 's/.*/{"text":"&"}/' >in.jsonl
json-extract -q in.jsonl >/dev/full
echo "exit $?"
json-extract -q -0 in.jsonl >/dev/full
echo "exit $?"
mkdir in.mount
mount -t tmpfs -o size=200k none in.mount 2>/dev/null ||
  { echo "skipped: only root mounts a small disk"; exit 77; }
run json-extract -o in.mount/out.jsonl in.jsonl
run json-extract --compress zstd -o in.mount/out.zst in.jsonl
run bpe-tokenize $VOCAB -o in.mount/out in.jsonl
ls -A in.mount
umount in.mount
