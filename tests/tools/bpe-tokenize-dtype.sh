# bpe-tokenize --dtype: two bytes for a token where all ids fit, four where one does not, and what
# cannot be is refused. The vocabulary is the 256 bytes of GPT-2's and names up to the size.
set -u
G=$GOLDEN/convert/gpt2
echo "#version: 0.2" >merges.txt
printf '{"text": "0"}\n' >one.jsonl
vocabulary() { # SIZE: one letter for each id; only "0" is in the text
  awk -v size="$1" 'BEGIN {
    printf "{\"0\": 0, \"<|endoftext|>\": 1"
    for (i = 2; i < size; ++i) printf ", \"~%d\": %d", i, i
    print "}"
  }' >vocab.json
}
for size in 300 65499 65500 65536 65537; do
  vocabulary $size
  for dtype in '' uint16 int32; do
    echo "--- $size ids, ${dtype:-no flag}"
    bpe-tokenize --quiet --input one.jsonl --output-prefix "out-$size-$dtype" \
      --vocab-file vocab.json --merge-file merges.txt ${dtype:+--dtype $dtype} &&
      inspect-dataset "out-${size}-${dtype}_text_document" | sed "s,.*: \([a-z0-9]*\)\, .*,\1,"
  done
done
