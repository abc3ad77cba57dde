# A wrong command line is status 2 and opens nothing.
. "$(dirname "$0")/prelude"
run json-extract --json-key text
run json-extract --workers x
run json-extract -0 --json-keys a b
run json-extract --json-keys a a
run json-extract - -
run bpe-tokenize --input x
run bpe-tokenize --input x --output-prefix y
run bpe-tokenize --input x --output-prefix y --merge-file m
run bpe-tokenize --input x --output-prefix y --vocab-file gpt2-vocab.json
run bpe-tokenize --input x --output-prefix y --tokenizer-type BertWordPieceLowerCase
run bpe-tokenize --input x --output-prefix y --tokenizer-type Gpt2
run bpe-tokenize --input x --output-prefix y $VOCAB --json-keys a/b
run bpe-tokenize --input x --output-prefix y $VOCAB --dtype int64
run bpe-tokenize --input x --output-prefix y --tokenizer-model gpt2
run bpe-tokenize --input x --output-prefix y $VOCAB --append-eod --ftfy
run bpe-tokenize -0 --input x --output-prefix y $VOCAB --json-keys a b
run bpe-tokenize --input x --output-prefix y $VOCAB --keep-newlines
run wiki-extract --namespaces 0, x
run hf-to-megatron --make-vocab-size-divisible-by 1048577 x y
run hf-to-megatron --make-vocab-size-divisible-by 1048576 x
# Datasets are named in one way.
for first in '--data-path a' '--valid-data-path a' '--data-args-path a' \
  '--per-split-data-args-path a'; do
  for second in '--data-path b' '--train-data-path b' '--data-args-path b' \
    '--per-split-data-args-path b'; do
    [ "${first%% *}" = "${second%% *}" ] || run shuffle-index $first $second --seq-length 8
  done
done
# All that is missing is in one message.
run shuffle-index --seq-length 8
run shuffle-index
run merge-datasets
run megatron-to-hf
left
