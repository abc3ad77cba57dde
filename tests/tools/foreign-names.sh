# Untrusted names with a line end, a terminal escape and a mark that reverses the direction of
# writing: in messages and in lists on stdout each stays in one line and is shown as escapes.
. "$(dirname "$0")/prelude"
evil=$'in.a\nmerge-datasets: all good\e[2K\xe2\x80\xae'
echo "== a file that is not there"
shuffle="shuffle-index -q --data-cache-path c --split 1,0,0 --seq-length 8 --samples 1,0,0"
for tool in "json-extract -q -o x" "bpe-tokenize -q $VOCAB -o x --input" \
  "merge-datasets -q --output-prefix x --input" "inspect-dataset quick" "$shuffle --data-path" \
  "wiki-extract -q -o x" "megatron-to-hf -o x -i" "hf-to-megatron -o x -i"; do
  run $tool "$evil" 2>&1 | head -2
done
echo "== lists"
mkdir in.d
make-dataset "in.d/$evil" 3 9 1
run merge-datasets -q --dry-run --input in.d --output-prefix x
run inspect-dataset quick "in.d/$evil"
run inspect-dataset stats "in.d/$evil" | head -1
echo "== a tracker and a key"
mkdir in.m
printf '\e[31mno\nnumber' >in.m/latest_checkpointed_iteration.txt
run megatron-to-hf -o x -i in.m
run trainer --device cpu --num-layers 1 --hidden-size 8 --num-attention-heads 1 --seq-length 8 \
  --micro-batch-size 1 --train-iters 1 --lr 1 --vocab-size 16 --eod-id 0 \
  --data-path "in.d/$evil" --split 1,0,0 --load in.m 2>&1 | tail -2
for kind in mkdir mkfifo; do
  mkdir -p in.t/iter_0000001
  rm -rf in.t/iter_0000001/meta.json
  $kind in.t/iter_0000001/meta.json
  run megatron-to-hf -o x -i in.t/iter_0000001
done
