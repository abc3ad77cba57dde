# A page of two runs and a dataset, a run's loss in the terminal, and what is refused.
. "$(dirname "$0")/prelude"
for run in a b; do
  mkdir $run
  for i in 1 2 3 4; do
    echo "{\"iteration\": ${i}0, \"train_iters\": 40, \"lm_loss\": $((9 - 2 * i)).5," \
      "\"tokens_per_second\": 1000, \"time\": $i}"
  done >$run/metrics.jsonl
  printf '[Learning rate and optimizer]\nlr = 0.1\nsave = "%s"\n' $run >$run/config.toml
done
json='{"text":"the same"}
{"text":"another"}
{"text":"the same"}'
echo "$json" | bpe-tokenize -q - --output-prefix d $VOCAB
run report a b d_text_document -o page.html
grep -c '<svg class="chart"' page.html
row='<th scope="row">'
grep -o "<title>.*</title>\|${row}equal to an earlier one</th><td>[0-9]*\|${row}save</th>.*" \
  page.html
report a d_text_document.bin ${VOCAB% *} --samples 1 | grep -A1 'Document 1'
report a/metrics.jsonl --skip-repeated d_text_document | grep -c 'equal to an earlier'
report d_text_document.* | grep -c '>equal to an earlier one<'
report d_text_document d_text_document | grep -c '>equal to an earlier one<'
report --plot --ascii a
run report a -o page.html
bpe-train -q --vocab-size 258 a/config.toml --input-format lines -o other
other="--vocab-file other/vocab.json --merge-file other/merges.txt"
run report d_text_document $other -o other.html 2>&1 | sed "s|$GOLDEN/||g"
run report d_text_document ${VOCAB% *} -o same.html
run report nothing
run report
run report --ascii a
run report --plot d_text_document

# A run that was killed while it wrote, on a disk that was full before: what is there is shown.
mkdir killed
sed '2s/.*/{"iteration": 20, "lm_/' a/metrics.jsonl >killed/metrics.jsonl
printf '{"iteration": 5' >>killed/metrics.jsonl
run report --plot --ascii killed
run report -q a killed -o killed.html
grep -o '<p>killed.*</p>' killed.html
printf 'x\n\0\0' >killed/metrics.jsonl
run report killed
mkdir -p folder/metrics.jsonl
run report folder

# Outputs that are also inputs, under other names too; what they hold stays.
ln a/metrics.jsonl a/hard && ln -s metrics.jsonl a/soft
cat a/metrics.jsonl a/config.toml d_text_document.* >in.before
for output in a/metrics.jsonl ./a//metrics.jsonl a/hard a/soft a/config.toml \
  d_text_document.idx d_text_document.bin d_text_document.manifest; do
  run report -f a d_text_document -o $output
done
cat a/metrics.jsonl a/config.toml d_text_document.* | cmp - in.before && echo "inputs stay"
run report -f a -o a/page.html
# The page is larger than stdio's buffer: the write fails before the end.
report a b >/dev/full
echo "exit $?"
report --plot a >/dev/full
echo "exit $?"
