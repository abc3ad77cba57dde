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
report --plot --ascii a
run report a -o page.html
run report nothing
run report
run report --ascii a
run report --plot d_text_document
