# With --input-format file an empty file is a document, as an empty line is with lines, in whichever
# part of a range it lies, packed or on standard input.
. "$(dirname "$0")/prelude"
printf one >in.1; : >in.2; printf three >in.3; : >in.4; gzip -c in.2 >in.gz
run json-extract --input-format file in.1 in.2 in.3 in.4
run json-extract --input-format file in.gz
run json-extract --input-format file </dev/null
run bpe-tokenize $VOCAB --input-format file -o out in.1 in.2 in.3 in.4
for parts in 2 3 20; do
  for k in $(seq $parts); do
    json-extract -q --input-format file --range $k/$parts in.1 in.2 in.3 in.4
  done | wc -l
done
for k in 1 2; do json-extract -q --input-format file --range $k/2 in.2 in.4; done | wc -l
