# A checkpoint's tokenizer is the one in its own root, whatever is now where it was converted.
set -u
G=$GOLDEN/convert/gpt2
relative() { sed "s|$WORK/||g"; }
text() {
  generate --device cpu --temperature 2 --seed 5 --max-new-tokens 8 --ignore-eod --prompt "A BA" \
    --load "$@" 2> >(relative >&2) | od -An -c
}
# What an export of that checkpoint says, and whether its tokenizer is that of `hf`.
export_of() {
  megatron-to-hf --input "$1" --output "back/$1" 2>&1 | relative
  cmp hf/tokenizer.json "back/$1/tokenizer.json" && echo "$1: exported with its own"
}
megatron-to-hf --quiet --input "$G/v3.pt" --output hf \
  --vocab-file "$G/vocab.json" --merge-file "$G/merges.txt"
# Another model's: the same tokens, two of them exchanged.
sed 's/"A": 32, "B": 33/"B": 32, "A": 33/' "$G/vocab.json" >vocab.json
megatron-to-hf --quiet --input "$G/v3.pt" --output other \
  --vocab-file vocab.json --merge-file "$G/merges.txt"
text hf >wanted
text other | cmp -s - wanted && echo "no difference to find"

for form in trainer megatron; do
  hf-to-megatron --quiet --input hf --output run-$form --to $form
  cp -r run-$form copy-$form
done
echo "- copies, while the original is there"
text copy-trainer | cmp - wanted
for form in trainer megatron; do export_of copy-$form; done
rm -r back
echo "- another model in the place of the original"
for form in trainer megatron; do
  hf-to-megatron --quiet --input other --output run-$form --to $form --force
done
text copy-trainer | cmp - wanted
text copy-trainer/iter_0000000/ | cmp - wanted
for form in trainer megatron; do export_of copy-$form; done
rm -r back
seq 40 | sed 's/.*/{"text": "5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20"}/' >ids.jsonl
bpe-tokenize -q --input ids.jsonl --output-prefix ids --tokenizer-type NullTokenizer \
  --vocab-size 100
trainer --load copy-trainer --use-checkpoint-args --finetune --save tuned --eval-iters 0 \
  --data-path ids_text_document --split 100,0,0 --micro-batch-size 1 --lr 1e-30 --train-iters 1 \
  --device cpu >log 2>errors || cat log
relative <errors | grep 'names it'
relative <log | grep -E '^(tokenizer-model|vocab-file) ='
export_of tuned
trainer --load copy-trainer/iter_0000000/ --use-checkpoint-args --finetune --save named \
  --eval-iters 0 --data-path ids_text_document --split 100,0,0 --micro-batch-size 1 --lr 1e-30 \
  --train-iters 1 --device cpu >log 2>errors || cat log
export_of named
echo "- an iteration without its root, and a tokenizer that the command names"
cp -r copy-trainer/iter_0000000 alone
text alone >text
text alone --tokenizer-model hf | cmp - wanted
echo "- the original is gone"
rm -r run-*
text copy-trainer | cmp - wanted
export_of copy-megatron
echo "- the original cannot be read"
for form in trainer megatron; do ln -s run-$form run-$form; done # leads to itself
text copy-trainer | cmp - wanted
for form in trainer megatron; do rm -r back; export_of copy-$form; done
for form in trainer megatron; do
  rm run-$form && mkdir -p run-$form/tokenizer
  ln -s tokenizer.json run-$form/tokenizer/tokenizer.json
done
text copy-trainer | cmp - wanted
for form in trainer megatron; do rm -r back; export_of copy-$form; done
for form in trainer megatron; do rm -r run-$form && touch run-$form; done # no folder
text copy-trainer | cmp - wanted
for form in trainer megatron; do rm -r back; export_of copy-$form; done
rm run-*
echo "- a run with a tokenizer of its own, in a folder of that name"
mkdir data && cp -r other data/tokenizer
trainer --load copy-trainer --use-checkpoint-args --finetune --save mine --eval-iters 0 \
  --tokenizer-type HuggingFaceTokenizer --tokenizer-model data/tokenizer \
  --data-path ids_text_document --split 100,0,0 --micro-batch-size 1 --lr 1e-30 --train-iters 1 \
  --device cpu >log 2>errors || cat errors
megatron-to-hf --input mine --output back/mine 2>&1 | relative
cmp other/tokenizer.json back/mine/tokenizer.json && echo "mine: exported with the run's"
echo "- a tracker of other weights is not replaced without --force"
hf-to-megatron --quiet --input other --output copy-megatron --to megatron 2>&1 | relative
echo "- another checkpoint would get the new one's tokenizer"
cp -r copy-megatron/release copy-megatron/iter_0000500
printf 500 >copy-megatron/latest_checkpointed_iteration.txt
for force in "" --force; do
  hf-to-megatron --quiet --input other --output copy-megatron --to megatron $force 2>&1 | relative
  hf-to-megatron --quiet --input other --output tuned $force 2>&1 | relative
done
cat copy-megatron/latest_checkpointed_iteration.txt && echo
cmp copy-megatron/tokenizer/tokenizer.json hf/tokenizer.json
cmp tuned/tokenizer/tokenizer.json hf/tokenizer.json
echo "- a folder for transformers with a meta.json of its own"
echo '{"lang": "en"}' >hf/meta.json
text hf | cmp - wanted
