# The same bytes from plain, gzip, bzip2, xz and zstd, from files, from stdin and as concatenated
# members.
. "$(dirname "$0")/prelude"
lines=$GOLDEN/tools/lines.jsonl
for end in "" .gz .bz2 .xz .zst; do
  json-extract -q "$lines$end" | cmp - "$lines" && json-extract -q <"$lines$end" |
    cmp - "$lines" && echo "same$end"
  cat "$lines$end" "$lines$end" | json-extract -q | wc -l
done
# xz fills blocks up with zeros, gzip does not.
{ cat "$lines.xz"; head -c 12 /dev/zero; cat "$lines.xz"; head -c 4 /dev/zero; } |
  json-extract -q | wc -l
{ cat "$lines.gz"; head -c 12 /dev/zero; cat "$lines.gz"; } | json-extract -q >/dev/null
echo "exit $?"
