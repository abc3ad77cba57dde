# --range K/N: the parts in order equal the whole, for any N, with the counts and the positions of
# the whole; input that cannot be divided is refused.
. "$(dirname "$0")/prelude"
corpus=$GOLDEN/tools/corpus.jsonl
cp "$corpus" in.1 && head -c 700 "$corpus" | head -n -1 >in.2
json-extract -q in.1 in.2 >in.whole
bpe-tokenize -q -o in.tokens $VOCAB --append-eod --input in.1 in.2
lines=$(json-extract -o in.count in.1 in.2 2>&1 | awk '{ gsub(",", ""); print $2 }')
for parts in 2 5; do
  : >in.parts
  prefixes=()
  for k in $(seq "$parts"); do
    json-extract --range "$k/$parts" in.1 in.2 2>in.note >>in.parts
    cat in.note >>in.notes
    bpe-tokenize -q -o "in.$parts.$k" $VOCAB --append-eod --range "$k/$parts" --input in.1 in.2
    prefixes+=("in.$parts.${k}_text_document")
  done
  cmp in.parts in.whole && echo "$parts parts are the whole"
  awk -v lines="$lines" '{ gsub(",", ""); sum += $2 }
    END { print (sum == lines ? "as many documents" : "documents: " sum) }' in.notes
  rm in.notes
  merge-datasets -q --output-prefix in.merged --force "${prefixes[@]}"
  cmp in.merged.bin in.tokens_text_document.bin && cmp in.merged.idx in.tokens_text_document.idx &&
    echo same tokens
done
# More parts than lines.
head -n 5 "$corpus" >in.few
for k in $(seq 12); do json-extract --range "$k/12" in.few; done 2>in.notes |
  cmp - <(json-extract -q in.few)
echo "$(grep -c '^json-extract: 0 documents' in.notes) empty parts"
bpe-tokenize -q -o in.none $VOCAB --range 12/12 --input in.few &&
  inspect-dataset in.none_text_document | grep documents
# The position of a bad record is that in the file.
{ cat in.1; printf '\r\n{"text": 5}\n'; cat in.1; } >in.bad
run json-extract in.bad >in.out 2>in.err1
for k in 1 2 3 4; do json-extract --range $k/4 in.bad >in.out; done 2>&1 |
  grep -v 'documents* in =' >in.err2
diff in.err1 in.err2 && echo same place
# Also where the range begins at the file's second byte, behind an empty line.
printf '\n{"text": 5}\n' >in.second
json-extract --range 2/13 in.second 2>&1 | grep -v 'documents* in ='
gzip -k in.1
run json-extract --range 2/2 in.1.gz
run json-extract --range 2/2 <in.1
run json-extract --range 0/2 in.1
run json-extract --range 3/2 in.1
run json-extract --range 2 in.1
run json-extract --range 1/2 --dedup in.1
run bpe-tokenize --range 1/2 -o out $VOCAB in.1.gz
left
