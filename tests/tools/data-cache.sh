# --data-cache-path: the trainer's cache is shuffle-index's, file by file; existing files are read,
# and damaged ones are made again.
set -u
G=$GOLDEN/convert/gpt2
for i in $(seq 80); do
  echo "{\"text\": \"the cat sat on the mat $i and the dog saw it\"}"
done >lines.jsonl
for name in a b; do
  bpe-tokenize --input lines.jsonl --output-prefix $name \
    --vocab-file "$G/vocab.json" --merge-file "$G/merges.txt" --append-eod --quiet
done 2>/dev/null
data="--split 80,20,0 --seq-length 16 --seed 7 --train-iters 6 --global-batch-size 2"
data="$data --eval-iters 1 --eval-interval 3"
data="$data --tokenizer-type GPT2BPETokenizer --vocab-file $G/vocab.json --merge-file $G/merges.txt"
train() { # cache, then more; prints the losses
  trainer $data --data-cache-path "$@" --num-layers 1 --hidden-size 16 --num-attention-heads 2 \
    --micro-batch-size 2 --lr 1e-3 --log-interval 1 --device cpu |
    grep -oE 'lm loss: [0-9.E+-]+'
}
for path in "a_text_document" "0.3 a_text_document 0.7 b_text_document"; do
  rm -rf ours theirs
  shuffle-index $data --data-path $path --data-cache-path theirs --quiet >/dev/null
  train ours --data-path $path >losses
  diff -r ours theirs && echo "the same $(ls ours | wc -l) files"
done
train ours --data-path $path | cmp - losses && echo the same losses
shuffle-index ${data/--seed 7/--seed 8} --data-path $path --data-cache-path other --quiet >/dev/null
for name in a b; do # another order under the name of ours: Megatron would accept it, too
  own=$(grep -l "\"${name}_text_document" ours/*GPTDataset-train-description.txt)
  same=$(grep -l "\"${name}_text_document" other/*GPTDataset-train-description.txt)
  for array in document sample shuffle; do
    cp "${same%-description.txt}-${array}_index.npy" "${own%-description.txt}-${array}_index.npy"
  done
done
train ours --data-path $path | cmp -s - losses || echo other samples
for own in ours/*-shuffle_index.npy; do head -c 100 "$own" >cut && cp cut "$own"; done
train ours --data-path $path | head -1
diff -rq ours theirs | wc -l
