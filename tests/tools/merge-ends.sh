# Datasets whose documents end otherwise are joined with a line about the first that differs.
set -u
G=$GOLDEN/convert/gpt2
VOCAB="--vocab-file $G/vocab.json --merge-file $G/merges.txt"
for i in $(seq 5); do echo "{\"text\": \"the cat $i\"}"; done >lines.jsonl
tokenize() { bpe-tokenize --input lines.jsonl --output-prefix "$@" --quiet $VOCAB; }
tokenize plain
tokenize ended --append-eod
tokenize twice --append-eod
tokenize other --append-eod --eod-token in
tokenize bare --no-manifest
: >lines.jsonl
tokenize empty
D=_text_document
merge() {
  echo "-- $*"
  merge-datasets $(printf "%s$D " "$@") --output-prefix out --force 2>&1
  grep eod_token out.manifest
}
merge ended twice
merge ended bare twice empty
merge ended twice plain other
merge plain ended
merge ended other
echo "-- dry run, quiet, shuffled"
merge-datasets plain$D ended$D --output-prefix new --dry-run 2>&1
merge-datasets plain$D ended$D --output-prefix out --force --quiet 2>&1
shuffle-index --data-path ended$D plain$D --rewrite shuffled 2>&1
shuffle-index --data-path ended$D twice$D --rewrite same 2>&1
