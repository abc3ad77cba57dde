# shuffle-index: files under Megatron's names (their bytes are held by indexed_test), repeated runs,
# wrong requests, and --rewrite, whose bytes do not depend on the memory it may use.
. "$(dirname "$0")/prelude"
set -u
status() { "$@" 2>err; echo "status $?"; sed 's/^/  /' err; }
make-dataset a 400 60 1
make-dataset b 300 60 2
run="--split 98,1,1 --seq-length 32 --train-iters 20 --global-batch-size 4"
run="$run --eval-interval 10 --eval-iters 1 --seed 7"
tokenizer="--tokenizer-type NullTokenizer --vocab-size 1000 --null-tokenizer-pad-id -1"

echo "== beside the dataset, and in a folder"
status shuffle-index --data-path a $run $tokenizer
status shuffle-index --data-path a $run $tokenizer
status shuffle-index --data-path 0.3 a 0.7 b $run $tokenizer --data-cache-path cache -v
for f in cache/*.txt; do
  [ "$(md5sum <"$f" | cut -c1-32)" = "$(basename "$f" | cut -c1-32)" ] ||
    echo "$f: name is not its text's"
done
shuffle-index --data-path a --split 1 --seq-length 8 --samples 10,0,0 --print-descriptions -q

echo "== a damaged or stale cache is written anew"
f=$(ls cache/*train-document_index.npy | head -1)
cp "$f" before && printf x | dd of="$f" bs=1 seek=200 conv=notrunc 2>/dev/null
status shuffle-index --data-path 0.3 a 0.7 b $run $tokenizer --data-cache-path cache >/dev/null
status shuffle-index --data-path 0.3 a 0.7 b $run $tokenizer --data-cache-path cache | tail -2
cmp "$f" before && echo mended

echo "== the forks of 2023"
status shuffle-index --data-path a $run --compat megatron-deepspeed --data-cache-path old
status shuffle-index --data-path a $run --compat megatron-2023 --data-cache-path old2
cat old/*.dsc | head -9

echo "== the releases of megatron-core: other names, the same arrays"
shuffle-index -q --data-path a $run $tokenizer --data-cache-path core | sed -n 4p
for release in 0.16 0.17 0.18 0.19 0.20; do
  tree=megatron-core-$release
  status shuffle-index --data-path a $run --tokenizer-type NullTokenizer --vocab-size 1000 \
    --compat $tree --data-cache-path $tree |
    sed -n '4p; $p'
  diff <(cd core && md5sum -- *.npy | cut -c1-32 | sort) \
    <(cd $tree && md5sum -- *.npy | cut -c1-32 | sort) && echo "  equal arrays"
done
status shuffle-index --data-path a $run $tokenizer --compat megatron-core-0.17
status shuffle-index --data-path a $run --tokenizer-type GPT2BPETokenizer --use-gigatoken true \
  --compat megatron-core-0.19
status shuffle-index --data-path a $run --tokenizer-type GPT2BPETokenizer \
  --tokenizer-hf-use-fast --tokenizer-hf-no-use-fast
status shuffle-index --data-path a $run --compat megatron-core-0.21

# The bytes are those of numpy by GPT-NeoX's rules.
echo "== GPT-NeoX: its order and names, beside the datasets"
mkdir neox && cd neox
cp ../a.bin ../a.idx ../b.bin ../b.idx .
neox="--seq-length 32 --train-iters 200 --global-batch-size 16 --eval-interval 50 --eval-iters 3"
neox="$neox --seed 7"
status shuffle-index --data-path a --split 90,7,3 $neox --sample-order gpt-neox
status shuffle-index --data-path a --split 90,7,3 $neox --compat gpt-neox
shuffle-index -q --train-data-path a b --valid-data-path 2 b --test-data-path a $neox \
  --sample-order gpt-neox
md5sum -- *.npy
md5sum -- *.npy | sed 's/_packedpi_ac//' >packed
rm -f -- *.npy
shuffle-index -q --data-path a --split 90,7,3 $neox --compat gpt-neox-2.0 --sample-order gpt-neox
shuffle-index -q --train-data-path a b --valid-data-path 2 b --test-data-path a $neox \
  --compat gpt-neox-2.0 >/dev/null
md5sum -c packed >/dev/null && echo "the same arrays under the names of 2.0"
inspect-dataset peek a --sample 5 --ids $neox --sample-order gpt-neox | head -c 60; echo
for wrong in "--compat megatron-2023" "--data-cache-path c" --no-extra-token --print-descriptions \
  "--train-data-exact-num-epochs 2" --keep-last-partial-validation-sequence; do
  status shuffle-index --data-path a $neox --sample-order gpt-neox $wrong
done
status shuffle-index --data-path 1 a $neox --sample-order gpt-neox
status shuffle-index --data-path a --seq-length 8 --samples all,1,1 --sample-order gpt-neox
status shuffle-index --data-path a --split 1 --seq-length 32 --samples 10,10,10 --compat gpt-neox
cd .. && rm -rf neox

echo "== words from files"
echo "0.3 a
0.7 b" >words
shuffle-index -q --data-args-path words $run $tokenizer --data-cache-path cache2
diff <(ls cache) <(ls cache2) && echo equal
echo '{"train": ["a", "b"], "valid": "b", "test": null}' >words.json
status shuffle-index --per-split-data-args-path words.json --seq-length 32 --samples all,10,0 \
  $tokenizer --data-cache-path cache3

echo "== wrong requests"
status shuffle-index --data-path a $run --split 1,2,3,4
status shuffle-index --data-path a b 1 c $run
status shuffle-index --data-path a --seq-length 8 --train-iters 5
status shuffle-index --data-path a --seq-length 8
status shuffle-index --data-path a --samples 1,2 --seq-length 8
status shuffle-index --data-path none $run
status shuffle-index --data-path a --seq-length 8 --samples 10,0,10 --split 969,30,0.001
status shuffle-index --data-path a --train-data-path b $run
status shuffle-index $run
echo "== more samples than can be counted; none"
for many in 9223372036854775807 1152921504606846975; do
  status shuffle-index --data-path a --seq-length 8 --samples $many,0,0
  status shuffle-index --data-path 0.3 a 0.7 b --seq-length 8 --samples $many,0,0
  status shuffle-index --data-path a --seq-length 8 --train-iters $many --global-batch-size 9
done
make-dataset short 4 9 1
status shuffle-index --data-path short --split 1 --seq-length 99 --samples all,0,0
status shuffle-index --data-path short --split 3,0,1 --seq-length 9 --samples all,0,all \
  $tokenizer | tail -n 3
make-dataset void 4 0 1
status shuffle-index --data-path void --split 1 --seq-length 8 --samples 9,0,0
status shuffle-index --data-path 0.3 a 0.7 void --split 1 --seq-length 8 --samples 9,0,0
ls -d short/cache/*/*train* void 2>/dev/null | wc -l
make-dataset modes 4 9 1
head -c "$(od -An -td8 -j18 -N8 modes.idx)" /dev/zero >>modes.idx
status shuffle-index --data-path modes --seq-length 8 --samples 9,0,0

echo "== --rewrite"
shuffle-index -q --data-path a b --rewrite one
shuffle-index -q --data-path a.bin a.idx a.manifest b.idx b.bin --rewrite files
cmp one.bin files.bin && cmp one.idx files.idx && echo "the files of a dataset are one dataset"
make-dataset big 20000 200 3
shuffle-index --data-path big a b --rewrite wide 2>&1
shuffle-index --data-path big a b --rewrite narrow --mem 300K 2>&1
cmp wide.bin narrow.bin && cmp wide.idx narrow.idx && echo equal
inspect-dataset verify one wide narrow
inspect-dataset where wide --document 11
inspect-dataset peek --ids wide --document 11 --max-tokens 5
echo "- where, through merges and shuffles"
seq 9 | sed 's/.*/{"text": "line &"}/' >lines.jsonl
bpe-tokenize -q $VOCAB -o lines lines.jsonl
shuffle-index -q --data-path lines_text_document --rewrite shuffled
merge-datasets -q shuffled lines_text_document shuffled --output-prefix merged
shuffle-index -q --data-path merged shuffled --rewrite again
merge-datasets -q again --output-prefix whole
for name in shuffled merged again whole; do
  documents=$(inspect-dataset $name | grep -oE '[0-9]+ documents' | cut -d' ' -f1)
  wrong=0
  for k in $(seq 0 $((documents - 1))); do
    line=$(inspect-dataset where $name --document $k)
    said=$(inspect-dataset peek $name ${VOCAB% --no*} --document $k | tail -n 1)
    [ "$line" = "lines.jsonl:${said##*line }" ] || { wrong=1; echo "$name $k: $line, $said"; }
  done
  echo "$name: $documents documents, wrong: $wrong"
done
mkdir away; mv shuffled.manifest away
inspect-dataset where merged --document 3
mv shuffled.* away
inspect-dataset where merged --document 3
make-dataset shuffled 9 9 1
inspect-dataset where merged --document 3
shuffle-index -q --data-path big a b --rewrite other --seed 5
cmp -s wide.bin other.bin || echo "another seed, another order"
shuffle-index -q --data-path big --rewrite sequences --level sequence --mem 300K
inspect-dataset sequences big
status shuffle-index --data-path a --rewrite one
status shuffle-index --data-path a --rewrite a
status shuffle-index --data-path 0.5 a 0.5 b --rewrite x
status shuffle-index --data-path a b --rewrite d/
make-dataset other 5 9 1 tokenizer=another
status shuffle-index --data-path a other --rewrite x
make-dataset stale 5 9 1; make-dataset kept 6 9 1; mv kept.bin stale.bin; mv kept.idx stale.idx
status shuffle-index --data-path a stale --rewrite x
echo mine >x.manifest
status shuffle-index --data-path a --rewrite x
cat x.manifest; rm x.manifest
ln -s a.manifest x.manifest
status shuffle-index --data-path a b --rewrite x --force
inspect-dataset a; rm x.manifest
(trap '' XFSZ; ulimit -f 8; status shuffle-index --data-path a b --rewrite full) 2>&1 | cat
ls x.* full.* .full.* 2>/dev/null
true
