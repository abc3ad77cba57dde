# The output does not depend on the number of workers, with and without the serial part of --dedup.
. "$(dirname "$0")/prelude"
for flags in "" "--dedup --min-chars 10" "--compress zstd" "-0 --control-chars remove"; do
  for workers in 1 2 5; do
    json-extract -q -w $workers $flags "$GOLDEN/tools/corpus.jsonl" "$GOLDEN/tools/corpus.jsonl" \
      >out.$workers
  done
  cmp out.1 out.2 && cmp out.1 out.5 && echo same
done
rm out.*
