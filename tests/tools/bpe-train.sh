# What bpe-train learns equals Hugging Face's trainer (digests by
# tests/reference/make_train_goldens.py, row "tool"), for any number of workers, any framing of the
# same documents, and counts on disk.
documents() {
  seq 1 3000 | awk '{
    printf "Line %d: the quick brown fox %d jumps over café; don'"'"'t!%s",
        $1, $1 * $1 % 997, end }' end="$1"
}
documents '\n' | awk '{ printf "{\"id\": %d, \"text\": \"%s\"}\n", NR, $0 }' >corpus.jsonl
documents '\n' >corpus.txt
tr '\n' '\0' <corpus.txt >corpus.nul
sums() { (cd "$1" && sha256sum vocab.json merges.txt tokenizer.json | cut -c1-64 >sums); }

bpe-train --input corpus.jsonl --vocab-size 700 --output one --workers 1
(cd one && sha256sum vocab.json merges.txt | cut -c1-64)
sums one
for workers in 2 5; do
  bpe-train -q --input corpus.jsonl --vocab-size 700 --output "w$workers" --workers $workers
  sums "w$workers"
  cmp one/sums "w$workers/sums"
done
gzip -c corpus.jsonl | bpe-train -q --vocab-size 700 --output packed
bpe-train -q --input-format lines --vocab-size 700 --output lines corpus.txt
bpe-train -q --input-format nul --vocab-size 700 --output nul <corpus.nul
for form in packed lines nul; do
  sums $form
  cmp one/sums $form/sums
done

# What it writes encodes: both forms give the same dataset.
bpe-tokenize -q --input corpus.jsonl --output-prefix a \
  --vocab-file one/vocab.json --merge-file one/merges.txt \
  --tokenizer-type GPT2BPETokenizer --append-eod
bpe-tokenize -q --input corpus.jsonl --output-prefix b --tokenizer-type HuggingFaceTokenizer \
  --tokenizer-model one/tokenizer.json --append-eod
cmp a_text_document.bin b_text_document.bin

# 100,000 distinct pieces in every worker's table: counts go to disk and stay exact.
for round in 1 2 3 4 5 6 7 8; do
  seq 100000 200000 | tr '\n' ' ' | fold -w 70000
  echo
done >numbers.txt
bpe-train -q --input-format lines --vocab-size 1000 --output memory --mem 1G numbers.txt
bpe-train --input-format lines --vocab-size 1000 --output disk --mem 32M --workers 4 -v \
  numbers.txt 2>log
cmp memory/tokenizer.json disk/tokenizer.json
grep -c 'bytes of counts went to disk' log
# Too many to learn from: the rarest are dropped, with a message.
(cat numbers.txt; seq 300000 400000 | tr '\n' ' ') |
  bpe-train --input-format lines --vocab-size 1000 --output rare --mem 32M

# The pair of files has no place for the space before a text.
echo '{"text": "a b"}' >in.jsonl
bpe-train --input in.jsonl --output space --vocab-size 260 --add-prefix-space

# Nothing is replaced, and no partial file is left.
bpe-train --input corpus.jsonl --output one; echo "status $?"
sums one; cmp one/sums w2/sums
bpe-train -q --input corpus.jsonl --vocab-size 600 --output one --force; echo "status $?"
echo '{"text": 5}' | bpe-train --output bad; echo "status $?"
ls -A bad
echo '{"text": 5}' | bpe-train --output bad --on-error skip --vocab-size 300; echo "status $?"
ls bad
: | bpe-train --output empty --special-tokens ''; echo "status $?"
bpe-train --output x --vocab-size 0 </dev/null; echo "status $?"
bpe-train </dev/null; echo "status $?"
