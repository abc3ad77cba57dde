# A bomb stops at the limit: 1.5 GB of lines in a few hundred KB. Most of a line is a key that is
# not selected.
. "$(dirname "$0")/prelude"
command -v zstd >/dev/null || { echo "skipped: zstd is not installed"; exit 77; }
line="{\"pad\":\"$(printf '%0985d' 0)\",\"text\":\"\"}"
yes "$line" | head -c 1500000000 | zstd -q -1 >in.zst
run json-extract -w 2 -o out.jsonl in.zst 2>err
sed 's/byte [0-9]*/byte N/' err >&2
left
