# A mistake in one of the pair's files is named by that file's path as it was given, and its line.
. "$(dirname "$0")/prelude"
printf '{"a":0,"b":1,"ab":2}' >v.json
printf '#version: 0.2\na b\n' >good.txt
printf '#version: 0.2\na b\nb a\n' >more.txt
printf '#version: 0.2\na b\nba\n' >half.txt
printf '{"text":"ab"}\n' >in.jsonl
tokenize() { bpe-tokenize -q --input in.jsonl --output-prefix out --vocab-file v.json "$@"; }
tokenize --merge-file good.txt
for merges in more.txt half.txt; do
  run tokenize --merge-file $merges
  run inspect-dataset peek out_text_document --vocab-file v.json --merge-file $merges
done
printf '{"a":0,"b":1,"ab":-2}' >v.json
run tokenize --merge-file good.txt
