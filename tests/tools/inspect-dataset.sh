# inspect-dataset: quick, verify, stats, peek, where, --repair; damage of every kind is reported and
# nothing crashes.
set -u
status() { "$@" 2>err; echo "status $?"; sed 's/^/  /' err; }
make-dataset a 400 60 1
make-dataset plain 20 9 2 no-manifest

echo "== quick, verify, stats"
inspect-dataset a plain.idx
inspect-dataset verify a plain.bin
inspect-dataset plain.* plain.idx
inspect-dataset stats a
inspect-dataset stats plain

echo "== peek and where"
inspect-dataset peek plain --document 1 --count 2
inspect-dataset peek plain --document 1 --max-tokens 3
inspect-dataset where a --document 17
inspect-dataset where plain --document 17
run="--split 1 --seq-length 24 --samples 20,0,0"
inspect-dataset where a --sample 3 $run
inspect-dataset peek a --sample 3 $run
inspect-dataset where a --sample 3 --split 999,1,0 --seq-length 24 --samples 20,1,1
status inspect-dataset peek plain --document 20
status inspect-dataset where a --sample 20000 $run
status inspect-dataset where a
status inspect-dataset peak a
status inspect-dataset peak

echo "== damage"
cp a.bin d.bin; cp a.manifest d.manifest; head -c -1 a.idx >d.idx
status inspect-dataset d a
(cat a.idx; printf 12345678) >d.idx
status inspect-dataset d
cp a.idx d.idx; printf '\001' | dd of=d.idx bs=1 seek=2000 conv=notrunc 2>/dev/null
status inspect-dataset quick d
status inspect-dataset verify d
cp a.idx d.idx; printf 'zz' | dd of=d.bin bs=1 seek=3000 conv=notrunc 2>/dev/null
status inspect-dataset verify d
head -c 3000 a.bin >d.bin
status inspect-dataset d
cp a.bin d.bin; rm d.manifest
status inspect-dataset verify d --vocab-size 999
status inspect-dataset verify d --vocab-size 1000 --eod-token 0
status inspect-dataset verify d --eod-token 1
cp plain.manifest d.manifest 2>/dev/null; cp a.idx d.idx
make-dataset e 3 3 3; cp e.manifest d.manifest
status inspect-dataset d
echo '{' >d.manifest
status inspect-dataset verify d
status inspect-dataset none

echo "== the uncounted end-of-document tokens of 2023"
make-dataset good 30 9 5 no-manifest
make-dataset old 30 9 5 uncounted-eod
cmp -s good.idx old.idx || echo damaged
status inspect-dataset old
status inspect-dataset verify old --repair
cmp good.idx old.idx && cmp good.bin old.bin && echo mended
status inspect-dataset quick old --repair
make-dataset old 30 9 5 uncounted-eod
printf '\007' | dd of=old.bin bs=1 seek=$(($(stat -c %s old.bin) - 2)) conv=notrunc 2>/dev/null
cp old.idx before
status inspect-dataset old --repair
cmp old.idx before && echo unchanged
status inspect-dataset stats a --repair
make-dataset old 30 9 5 uncounted-eod
status inspect-dataset old --repair --eod-token 1
make-dataset single 1 9 4 uncounted-eod
echo "-- a single document"
status inspect-dataset stats single
status inspect-dataset single
status inspect-dataset single --repair
status inspect-dataset single --repair --eod-token 5
echo mine >single.manifest
status inspect-dataset single --repair --eod-token 0
cat single.manifest; rm single.manifest
status inspect-dataset verify single --eod-token 0

echo "== the tokenizer of peek: a file, a pair, a folder; what is named in vain is refused or named"
V=$GOLDEN/tools/vocab.json M=$GOLDEN/tools/merges.txt S=$GOLDEN/tok/sentencepiece
peek() { # NAME FLAG...
  echo "-- ${*:2}" | sed "s|$GOLDEN/||g"
  inspect-dataset peek "$1" "${@:2}" 2>err; echo "status $?"; sed "s|$GOLDEN/||g; s/^/  /" err
}
printf '{"text": "the cat sat"}\n' >in.jsonl
bpe-tokenize -q --input in.jsonl --output-prefix pair --append-eod \
  --vocab-file "$V" --merge-file "$M"
mkdir folder "model folder"
cp "$V" folder/vocab.json; cp "$M" folder/merges.txt
peek pair_text_document --vocab-file "$V" --merge-file "$M"
peek pair_text_document --vocab-file <(cat "$V") --merge-file <(cat "$M") | tail -n 2
peek pair_text_document --tokenizer-model folder
peek pair_text_document --vocab-file folder
peek pair_text_document --tokenizer-type NullTokenizer --vocab-file folder --vocab-size 9
peek pair_text_document --vocab-file "$V"
peek pair_text_document --merge-file "$M"
peek pair_text_document --tokenizer-model folder --vocab-file "$V" --merge-file "$M"
peek pair_text_document --tokenizer-model folder --merge-file "$M"
peek pair_text_document --vocab-file folder --merge-file "$M"
peek pair_text_document --vocab-file "$V" --merge-file "$M" --tiktoken-encoding gpt2
peek pair_text_document --tiktoken-encoding gpt2
peek pair_text_document --tokenizer-model "model folder"
peek pair_text_document --tokenizer-model none
peek pair_text_document --vocab-file "$V" --merge-file "$M" --vocab-size 500 \
  --tiktoken-pattern v1 --trust-remote-code
bpe-tokenize -q --input in.jsonl --output-prefix whole --append-eod \
  --tokenizer-model "$S/llama.json"
cp "$S/llama.json" "model folder/tokenizer.json"
peek whole_text_document --vocab-file "$S/llama.json"
peek whole_text_document --tokenizer-model "model folder"
peek whole_text_document --tokenizer-model "$S/llama.json" --tiktoken-num-special-tokens 10 \
  --null-tokenizer-eod-id 3
peek whole_text_document --tokenizer-model "$S/llama.json" --tiktoken-encoding gpt2
bpe-tokenize -q --input in.jsonl --output-prefix spm --append-eod \
  --tokenizer-model "$S/llama.model" \
  --tokenizer-type SentencePieceTokenizer --legacy-tokenizer
peek spm_text_document --tokenizer-model "$S/llama.model" --tokenizer-type SentencePieceTokenizer
printf 'dGhl 0\n' >gpt2.tiktoken; cp gpt2.tiktoken own.tiktoken
peek whole_text_document --tokenizer-model own.tiktoken
peek whole_text_document --tokenizer-model gpt2.tiktoken --max-tokens 1
peek whole_text_document --tokenizer-model own.tiktoken --tiktoken-encoding p50k_base --max-tokens 1
echo "== ids of 64 bits, and ids that the vocabulary lacks: 2^40, 5, 2^31, 1000000, 6"
{ printf 'MMIDIDX\0\0\1\0\0\0\0\0\0\0\5\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\5\0\0\0'
  head -c 16 /dev/zero; printf '\1\0\0\0\0\0\0\0'; } >wide.idx
{ printf '\0\0\0\0\0\1\0\0''\5\0\0\0\0\0\0\0''\0\0\0\200\0\0\0\0'
  printf '\100\102\17\0\0\0\0\0''\6\0\0\0\0\0\0\0'; } >wide.bin
inspect-dataset peek wide
inspect-dataset peek wide --vocab-file "$V" --merge-file "$M"
inspect-dataset peek wide --sample 0 --split 1 --seq-length 4 --samples 1,0,0
echo "-- floats are no ids"
cp wide.bin floats.bin; cp wide.idx floats.idx
printf '\006' | dd of=floats.idx bs=1 seek=17 conv=notrunc 2>/dev/null
status inspect-dataset quick floats
status inspect-dataset peek floats --ids
status inspect-dataset peek floats --sample 0 --split 1 --seq-length 4 --samples 1,0,0
status shuffle-index --data-path floats --split 1 --seq-length 4 --samples 1,0,0
status trainer --data-path floats --split 1 --num-layers 1 --hidden-size 8 \
  --num-attention-heads 1 --seq-length 4 --max-position-embeddings 4 --micro-batch-size 1 \
  --train-iters 1 --vocab-size 64 --tokenizer-type NullTokenizer --lr 1e-3 --device cpu |
  tail -n 3
