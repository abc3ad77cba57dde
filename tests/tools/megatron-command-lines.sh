# The tutorials' command lines with only the program's name changed, and every flag of all forks
# that has no effect here.
. "$(dirname "$0")/prelude"
cp "$GOLDEN/tools/vocab.json" in.vocab.json
cp "$GOLDEN/tools/merges.txt" in.merges.txt
printf '{"content":"def f(x):\\n  return x","text":"some text","title":"a title"}\n' >in.json
run bpe-tokenize --input in.json --output-prefix codeparrot --vocab in.vocab.json \
  --dataset-impl mmap --tokenizer-type GPT2BPETokenizer --merge-file in.merges.txt \
  --json-keys content --workers 32 --chunk-size 25 --append-eod
run bpe-tokenize --input in.json --output-prefix my-gpt2 --vocab-file in.vocab.json \
  --tokenizer-type GPT2BPETokenizer --merge-file in.merges.txt --append-eod --workers 2 \
  --json-keys text title --partitions 2 --keep-sequential-samples --log-interval 10 \
  --lang english --find-optimal-num-workers --workers-to-check 16 32 64 --max-documents 10 \
  --num-docs 5 --seq-length 1024 --trust-remote-code --padded-vocab-size 50304 --vocab-extra-ids 0 \
  --tokenizer-metadata x --tiktoken-num-special-tokens 1000 --tokenizer-sentencepiece-legacy \
  --no-tokenizer-sentencepiece-ignore-extra-whitespaces --tokenizer-hf-no-use-fast \
  --tokenizer-hf-use-fast --legacy-tokenizer --null-tokenizer-pad-id -1 --chat-template x \
  --use-gigatoken --rank 1 --make-vocab-size-divisible-by 128 --tensor-model-parallel-size 2
run bpe-tokenize -q --input in.json,in.json --output-prefix neox \
  --vocab-file in.vocab.json --merge-file in.merges.txt \
  --tokenizer-type HFGPT2Tokenizer --jsonl-keys text --disable-pad-vocab-size
left
