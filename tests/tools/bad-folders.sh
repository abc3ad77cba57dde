# What cannot be written, for every tool that writes: a folder that may not be changed (as another
# user, where this one is root), a file where a folder should be, an output that exists, a full
# disk. One line of error, and nothing is left.
. "$(dirname "$0")/prelude"
printf '{"text":"good"}\n' >in.jsonl
make-dataset in.a 40 9 1
make-dataset in.b 40 9 2
head -c 300000 /dev/urandom | od -An -v -tx1 | sed 's/.*/{"text":"&"}/' >in.large.jsonl
make-dataset in.large 4000 60 1
samples="--split 8,1,1 --seq-length 16 --samples 900,20,20"
samples="$samples --tokenizer-type NullTokenizer --vocab-size 1000"
writers() { # folder, prefix of the inputs' names
  local to=$1 in=$2
  run json-extract -q -o "$to/x.jsonl" "$in.jsonl"
  run bpe-tokenize -q $VOCAB -o "$to/x" --input "$in.jsonl"
  run bpe-train -q --vocab-size 260 --on-error quarantine -o "$to/v" --input "$in.jsonl"
  run merge-datasets -q in.a in.b "$3" --output-prefix "$to/m"
  run shuffle-index -q --data-path "$3" --rewrite "$to/r"
  run shuffle-index -q --data-path 0.3 "$3" 0.7 in.b $samples --data-cache-path "$to/c" |
    grep -v '\.npy$'
}
echo "== a folder that may not be changed"
mkdir in.folder
chmod 555 in.folder
if [ "$(id -u)" = 0 ]; then
  command -v setpriv >/dev/null || { echo "skipped: setpriv is not installed"; exit 77; }
  chmod 755 "$WORK"
  other="setpriv --reuid 65534 --regid 65534 --clear-groups"
  $other test -x "$(command -v bpe-tokenize)" -a -r "$GOLDEN/tools/merges.txt" ||
    { echo "skipped: other users may not read this checkout"; exit 77; }
  export -f run writers
  export VOCAB samples
  $other bash -c 'writers in.folder in in.a'
else
  writers in.folder in in.a
fi
ls -A in.folder
chmod 755 in.folder
echo "== a file where the folder should be"
writers in.jsonl in in.a
echo "== outputs that exist"
mkdir in.there
writers in.there in in.a >/dev/null 2>&1
before=$(find in.there -type f | sort | xargs sha256sum)
writers in.there in in.a
[ "$before" = "$(find in.there -type f | sort | xargs sha256sum)" ] && echo untouched
echo "== a full disk"
mkdir in.mount
mount -t tmpfs -o size=64k none in.mount 2>/dev/null ||
  { echo "skipped: only root mounts a small disk"; exit 77; }
writers in.mount in.large in.large 2>&1 | grep -v 'exit 0' | sed 's/c\/[0-9a-f]*-GPT.*npy/c\/FILE/'
(cd in.mount && find . -type f ! -path './v/*')
umount in.mount
left
