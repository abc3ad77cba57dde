# What a run is told of its datasets' manifests: once, also with several ranks and with --dry-run.
set -u
cp "$GOLDEN/convert/gpt2/vocab.json" "$GOLDEN/convert/gpt2/merges.txt" .
mkdir other
cp "$GOLDEN/convert/whole_job/vocab.json" "$GOLDEN/convert/whole_job/merges.txt" other
VOCAB="--vocab-file vocab.json --merge-file merges.txt"
OTHER="--vocab-file other/vocab.json --merge-file other/merges.txt"
for i in $(seq 60); do
  echo "{\"text\": \"the cat sat on the mat $i and the dog saw it\"}"
done >lines.jsonl
bpe-tokenize --input lines.jsonl --output-prefix plain $VOCAB --quiet
bpe-tokenize --input lines.jsonl --output-prefix ended $VOCAB --quiet --append-eod
run() {
  name=$1 && shift
  trainer --num-layers 1 --hidden-size 8 --num-attention-heads 1 --seq-length 8 --train-iters 2 \
    --micro-batch-size 2 --lr 1e-3 --eval-iters 0 --split 100,0,0 --device cpu "$@" \
    >log 2>err || cat log err
  echo "-- $name"
  grep -E 'documents|tokenizer' err
}
EOD="--eod-mask-loss --reset-position-ids"
run "both end" --data-path ended_text_document $VOCAB $EOD
run "one does not" --data-path 0.5 plain_text_document 0.5 ended_text_document $VOCAB $EOD
run "two ranks" --data-path plain_text_document $VOCAB $EOD --nproc-per-node 2
run "dry run" --data-path plain_text_document $VOCAB --reset-attention-mask --dry-run
run "not asked" --data-path plain_text_document $VOCAB
bpe-tokenize --input lines.jsonl --output-prefix other $OTHER --quiet
run "another tokenizer" --data-path plain_text_document $OTHER
run "the same" --data-path other_text_document $OTHER
run "no tokenizer" --data-path other_text_document --vocab-size 5000
run "a blend" --data-path 0.5 plain_text_document 0.5 other_text_document --vocab-size 5000 \
  --dry-run
