#!/usr/bin/env bash
# Makes the corpora of bench/tokenize.py in a folder: documents, each ended by a NUL byte.
#   bench/corpora.sh FOLDER [JSONL [NOVEL]]
# From Debian packages (fetched with apt-get download, unpacked, not installed), without repetition:
#   code.txt      linux-source-6.1, all C sources and headers (over 1 GB)
#   english.txt   dict-gcide, the dictionary's prose
#   languages.txt debian-handbook, a dozen languages
# From existing files, repeated, which favours every cache:
#   wiki.txt      the "text" of JSONL's lines, 40 times
#   novel.txt     NOVEL, 30 times, one document
set -euo pipefail
[ $# -ge 1 ] || { echo "usage: corpora.sh FOLDER [JSONL [NOVEL]]" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

unpack() { (cd "$work" && apt-get download -qq "$1" && dpkg-deb -x "$1"_*.deb "$1"); }
# Valid UTF-8 files without NUL bytes, from a list on stdin, become documents.
documents() {
  python3 -c '
import sys
for path in sys.stdin.read().split("\0"):
    if not path: continue
    raw = open(path, "rb").read()
    try: raw.decode()
    except UnicodeDecodeError: continue
    if raw and b"\0" not in raw: sys.stdout.buffer.write(raw + b"\0")'
}
if [ ! -e "$folder/english.txt" ]; then
  unpack dict-gcide
  find "$work/dict-gcide" -name '*.dict.dz' -print0 | xargs -0 zcat -f | python3 -c '
import sys
text = sys.stdin.buffer.read().decode(errors="ignore")
for entry in text.split("\n\n"):
    if entry.strip(): sys.stdout.buffer.write(entry.encode() + b"\0")' > "$folder/english.txt"
fi
if [ ! -e "$folder/languages.txt" ]; then
  unpack debian-handbook
  find "$work/debian-handbook" -name '*.html' -print0 | sort -z |
    documents > "$folder/languages.txt"
fi
if [ ! -e "$folder/code.txt" ]; then
  unpack linux-source-6.1
  mkdir "$work/linux"
  tar -xf "$work"/linux-source-6.1/usr/src/linux-source-*.tar.xz -C "$work/linux"
  find "$work/linux" -name '*.[ch]' -print0 | sort -z | documents > "$folder/code.txt"
fi
if [ $# -ge 2 ]; then
  python3 -c '
import json, sys
text = b"".join(json.loads(line)["text"].encode() + b"\0" for line in open(sys.argv[1]))
sys.stdout.buffer.write(text * 40)' "$2" > "$folder/wiki.txt"
fi
if [ $# -ge 3 ]; then
  for _ in $(seq 30); do cat "$3"; done > "$folder/novel.txt"
fi
ls -l "$folder"
