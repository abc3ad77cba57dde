# The commands of README.md and docs/pipeline.md that divide a dump work for a path with any
# characters.
. "$(dirname "$0")/prelude"
cp "$GOLDEN/tools/vocab.json" "$GOLDEN/tools/merges.txt" .
mkdir -p K/KIWI && bzip2 -c "$GOLDEN/tools/wiki.xml" >K/KIWI/K.xml.bz2
wiki-extract -q -o - K/KIWI/K.xml.bz2 | bpe-tokenize -q --output-prefix whole \
  --vocab-file vocab.json --merge-file merges.txt --append-eod
for page in README.md docs/pipeline.md; do
  sed -n '/^seq 32 /,/^merge-datasets/{/^parallel/,/merges.txt/d;p}' "$GOLDEN/../../$page" |
    sed 's:enwiki.xml.bz2:K/KIWI/K.xml.bz2:;s:merge-datasets :&-q :;s/32/3/g' >lines
  wc -l <lines
  mkdir parts shards && bash -e lines
  cmp corpus.bin whole_text_document.bin && cmp corpus.idx whole_text_document.idx &&
    echo "$page: the parts are the whole"
  rm -r parts shards corpus.*
done
