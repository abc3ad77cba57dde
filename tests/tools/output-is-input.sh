# An output that is also an input, under any name, is refused before anything is written, by every
# program that writes a file: each flag that names one, with --force where there is one. What other
# tests try is not repeated here: json-extract, near-dedup, parquet-extract, merge-datasets,
# shuffle-index, report.
. "$(dirname "$0")/prelude"
B=$GOLDEN/tools
sums() { find . -type f | sort | xargs -d '\n' cksum; }
# A command that must be refused; every file is as it was.
refused() {
  sums >"$WORK.before"
  "$@" 2>&1 | sed "s|$GOLDEN|GOLDEN|g"
  echo "exit ${PIPESTATUS[0]}"
  sums | cmp - "$WORK.before" || echo "a file has changed"
}
trap 'rm -f "$WORK.before"' EXIT

printf '%s\n' '{"text":"hello world"}' '{"text":"bad' '{"text":"hello again"}' >docs
ln -s docs link
cp "$B/vocab.json" "$B/merges.txt" .
cp docs p_text_document.bin
cp docs q.quarantine
keep="--on-error quarantine"
echo "- bpe-tokenize"
tokenize="bpe-tokenize -f --vocab-file vocab.json --merge-file merges.txt $keep"
refused $tokenize -o p docs --quarantine docs
refused $tokenize -o p docs --quarantine link
refused $tokenize -o p q.quarantine -i docs --quarantine vocab.json
refused $tokenize -o p docs --quarantine ./merges.txt
refused $tokenize -o q q.quarantine
refused $tokenize -o p p_text_document.bin
refused $tokenize -o p - --quarantine docs <docs
refused $tokenize --count docs --quarantine docs
run bpe-tokenize -q --count -o p --vocab-file vocab.json --merge-file merges.txt \
  --on-error skip -i p_text_document.bin 2>errors
for end in idx manifest; do
  ln docs r_text_document.$end
  refused $tokenize -o r docs
  rm r_text_document.$end
done
ln docs s_00001_text_document.idx
refused $tokenize -o s --shard-tokens 5 docs
refused $tokenize -o s --shard-tokens 1 docs
rm s_00001_text_document.idx
ln docs s_00000_text_document.bin
refused $tokenize -o s --shard-tokens 1 docs
rm s_00000_text_document.bin
hf-to-megatron -q -i "$GOLDEN/convert/families/llama" -o start
mkdir folder; cp vocab.json merges.txt folder
refused bpe-tokenize -f --tokenizer-type HuggingFaceTokenizer --tokenizer-model folder -o p docs \
  $keep --quarantine folder/vocab.json

echo "- bpe-train"
refused bpe-train -f --vocab-size 300 $keep -o v docs --quarantine docs
refused bpe-train -f --vocab-size 300 $keep -o . docs --quarantine link
for name in vocab.json merges.txt; do
  refused bpe-train -f --vocab-size 300 -o . docs $name
done
mkdir t; ln docs t/tokenizer.json; ln docs t/quarantine
refused bpe-train -f --vocab-size 300 -o t docs
rm t/tokenizer.json
refused bpe-train -f --vocab-size 300 $keep -o t docs

echo "- wiki-extract"
mkdir -p w/AA x/AB y
cp "$B/wiki.xml" w/AA/wiki_00
bzip2 -k <"$B/wiki.xml" >x/AB/wiki_07.bz2
cp "$B/wiki.xml" y/.unfinished
wiki-extract -q --templates-only --templates templates.xml w/AA/wiki_00
refused wiki-extract --force -o w w/AA/wiki_00
ln -s x z
refused wiki-extract --force -o z - <x/AB/wiki_07.bz2
refused wiki-extract --force -o y y/.unfinished
refused wiki-extract --force --templates-only --templates w/AA/wiki_00 w/AA/wiki_00
ln templates.xml x/AB/wiki_01
refused wiki-extract --force -o x --templates templates.xml w/AA/wiki_00
# Templates that are not used, and a dump beside its texts, are no obstacle.
wiki-extract -q --force -o w2 --no-templates --templates templates.xml w/AA/wiki_00
cp w/AA/wiki_00 w2/dump.xml
run wiki-extract -q --force -o w2 w2/dump.xml

echo "- megatron-to-hf, hf-to-megatron"
megatron-to-hf -q -i start -o hf
refused megatron-to-hf -i hf -o ./hf --force --dtype bf16
ln -s hf hf-link
refused megatron-to-hf -i hf -o hf-link --force --dtype bf16
mkdir half; cp -r hf half/.megatron-to-hf.tmp
refused megatron-to-hf -i half/.megatron-to-hf.tmp -o half --force
refused megatron-to-hf -i start -o half --tokenizer half/.megatron-to-hf.tmp --force
refused megatron-to-hf -i start -o folder --tokenizer folder --force
refused megatron-to-hf -i start -o start/tokenizer --force
refused megatron-to-hf -i start -o start --to trainer --force
cp -r start bare; rm -r bare/tokenizer
refused megatron-to-hf -i bare -o bare --to trainer --force --vocab-size 64
cp hf/config.json bare
refused megatron-to-hf -i bare -o bare --to trainer --force --vocab-size 64
refused megatron-to-hf -i start -o out --verify docs --report docs --force
refused megatron-to-hf -i start -o out --verify text --report start/tokenizer/config.json --force
hf-to-megatron -q -i hf -o m --to megatron
refused megatron-to-hf -i m -o m --to megatron --force
hf-to-megatron -q -i hf -o one.pt --to megatron 2>&1 | head -0
refused megatron-to-hf -i one.pt --vocab-size 100 -o one.pt --to megatron --force
mkdir -p n/release/mp_rank_00
ln hf/model.safetensors n/release/mp_rank_00/model_optim_rng.pt
refused hf-to-megatron -i hf -o n --to megatron --force
mkdir -p s/tokenizer; ln hf/config.json s/tokenizer/config.json
refused hf-to-megatron -i hf -o s --force
run hf-to-megatron -q -i hf -o hf
run hf-to-megatron -q -i hf -o hf --force
# An export in a checkpoint's own folder is no input of the next one; its tokenizer is.
for root in start m; do
  run megatron-to-hf -q -i $root -o $root
  run megatron-to-hf -q -i $root -o $root --force --dtype bf16
  megatron-to-hf -q -i $root -o again --force --dtype bf16
  cmp $root/model.safetensors again/model.safetensors
done
refused megatron-to-hf -i m/release -o m/tokenizer --force | sed "s:$WORK/::"

echo "- trainer, plan-training"
bpe-tokenize -q --vocab-file vocab.json --merge-file merges.txt -o d "$B/corpus.jsonl" \
  --on-error skip 2>&1 | head -0
model="--num-layers 1 --hidden-size 32 --num-attention-heads 2 --seq-length 16 --lr 1e-3
  --max-position-embeddings 16 --micro-batch-size 1 --train-iters 1 --device cpu"
files="--vocab-file vocab.json --merge-file merges.txt --data-path 0.5 d_text_document 0.5 \
d_text_document"
printf 'seed = 7\n' >run.toml
printf '{"train_batch_size": 1, "train_micro_batch_size_per_gpu": 1}\n' >ds.json
for file in vocab.json d_text_document.idx d_text_document.bin run.toml ds.json; do
  refused trainer $model $files --config run.toml --deepspeed_config ds.json --metrics-file $file
done
refused trainer $model --vocab-size 300 --train-data-path d_text_document --dry-run \
  --schedule-svg d_text_document.manifest
refused trainer $model --vocab-size 300 --valid-data-path d_text_document --metrics-file \
  d_text_document.idx
refused trainer $model --vocab-size 300 --test-data-path d_text_document --metrics-file \
  d_text_document.idx
chmod 600 docs
for flag in data-args-path per-split-data-args-path job-secret-file gpu; do
  refused trainer $model --vocab-size 300 --$flag docs --metrics-file docs
done
refused trainer $model --tokenizer-model folder --tokenizer-type HuggingFaceTokenizer \
  --dry-run --schedule-svg folder/merges.txt
printf '{"seed": 1}\n' >neox.yml
refused trainer $model --config neox.yml --metrics-file neox.yml
refused plan-training --config run.toml --calibrate run.toml
refused plan-training --gpu docs --calibrate link
