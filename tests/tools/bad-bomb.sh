# A bomb stops at the limit: 3 GB of lines in a few hundred KB.
. "$(dirname "$0")/prelude"
command -v zstd >/dev/null || exit 77
yes '{"text":""}' | head -c 3000000000 | zstd -q -1 >in.zst
run json-extract -w 2 -o out.jsonl in.zst 2>err
sed 's/byte [0-9]*/byte N/' err >&2
left
