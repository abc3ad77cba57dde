# As the right side of pipes, and from every form of input the same tokens.
. "$(dirname "$0")/prelude"
json-extract -q "$GOLDEN/tools/corpus.jsonl" --json-keys title |
  bpe-tokenize -q $VOCAB --json-keys title -o json
json-extract -q "$GOLDEN/tools/corpus.jsonl" --json-keys title -0 |
  bpe-tokenize -q $VOCAB --json-keys title -0 -o nul
json-extract -q "$GOLDEN/tools/corpus.jsonl" --json-keys title --compress zstd |
  bpe-tokenize -q $VOCAB --json-keys title -o zst
json-extract -q "$GOLDEN/tools/corpus.jsonl" --json-keys title -0 | tr '\0' '\n' |
  bpe-tokenize -q $VOCAB --json-keys title --input-format lines -o lines
for name in nul zst lines; do
  cmp json_title_document.bin ${name}_title_document.bin &&
    cmp json_title_document.idx ${name}_title_document.idx
done
printf 'one\ntwo\n' >in.txt
bpe-tokenize $VOCAB --input-format file -o file in.txt in.txt
printf '{"text":"a b. C d! Then <|endoftext|>"}\n' |
  bpe-tokenize $VOCAB --split-sentences --append-eod -o split
od -An -tu8 -v -j 18 -N 16 split_text_sentence.idx
left
