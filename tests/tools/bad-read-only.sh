# A folder that cannot be written is an error before anything is read.
. "$(dirname "$0")/prelude"
printf '{"text":"good"}\n' >in.jsonl
mkdir in.folder
if [ "$(id -u)" = 0 ]; then
  mount -t tmpfs -o ro none in.folder 2>/dev/null ||
    { echo "skipped: only root mounts a small disk"; exit 77; }
else
  chmod a-w in.folder
fi
json-extract -o in.folder/out.jsonl in.jsonl 2>&1 | sed 's/permission denied/read-only file system/'
bpe-tokenize $VOCAB -o in.folder/out in.jsonl 2>&1 |
  sed 's/permission denied/read-only file system/'
ls -A in.folder
run json-extract -o no/such/folder/out.jsonl in.jsonl
run bpe-tokenize $VOCAB -o no/such/folder/out in.jsonl
[ "$(id -u)" != 0 ] || umount in.folder
left
