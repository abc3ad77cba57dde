# What generate takes of a folder with a checkpoint and an export, and what it refuses rather than
# hide: ids of another model's tokenizer, scores that are no numbers. An empty prompt is a prompt.
set -u
G=$GOLDEN/convert
try() { "$@" 2>&1 | sed "s|$GOLDEN|GOLDEN|g"; echo "status ${PIPESTATUS[0]}"; }
text() { generate --device cpu --greedy --max-new-tokens 3 --ignore-eod "$@"; }
megatron-to-hf --quiet --input "$G/gpt2/v3.pt" --output hf \
  --vocab-file "$G/gpt2/vocab.json" --merge-file "$G/gpt2/merges.txt"
hf-to-megatron --quiet --input hf --output run

echo "- an export in a folder of checkpoints, which nothing reads"
text --load run --prompt it >checkpoint
sed 's/"gpt2"/"bert"/' hf/config.json >run/config.json
cp -r run/iter_0000000 run/iter_0000007
text --load run --prompt it >text; cmp checkpoint text
text --load run --prompt it --ckpt-step 7 >text; cmp checkpoint text
megatron-to-hf --quiet --input run --output back; cmp hf/model.safetensors back/model.safetensors
cmp hf/config.json back/config.json; cmp hf/tokenizer.json back/tokenizer.json
try text --load run --prompt it --ckpt-step 8
try megatron-to-hf --input run --output back --force --iteration 8
echo "- a step of an export"
try text --load hf --prompt it --ckpt-step 0
try megatron-to-hf --input hf --output other --iteration 1

echo "- another model's tokenizer"
hf-to-megatron --quiet --input "$G/families/llama" --output small
try text --load small --vocab-file hf/vocab.json --merge-file hf/merges.txt \
  --prompt '<|endoftext|>'

echo "- numbers that are none"
cp -r hf nan
# NaN in the file's last 32 bytes, a final norm's, which every score reads.
for _ in $(seq 8); do printf '\377\377\377\177'; done >bytes
dd if=bytes of=nan/model.safetensors conv=notrunc bs=1 status=none \
  seek=$(($(stat -c %s hf/model.safetensors) - 32))
try text --load nan --prompt it --no-prompt
for to in trainer megatron; do
  try hf-to-megatron --input nan --output start-$to --to $to
  find start-$to -type f ! -name '.trainer.lock'
done

echo "- empty values"
text --load hf --prompt "" <hf/merges.txt >text
text --load hf --prompt '<|endoftext|>' --no-prompt | cmp - text
try text --load hf --prompt-file "" <hf/merges.txt

echo "- an export that was killed among its names"
mkdir -p killed/.replaced
printf 'last config.json\0taken config.json\0' >killed/.replaced/.changes
cp hf/config.json killed/.replaced
try text --load killed --prompt it
try hf-to-megatron --input killed --output z
try megatron-to-hf --input killed --output z
cp hf/config.json killed
try hf-to-megatron --input killed --output z

echo "- a checkpoint of another program"
mkdir theirs
cp -r "$G/torch_dist/llama_tp2" theirs/iter_0000007
try text --load theirs/iter_0000007 --prompt it
try text --load theirs --prompt it --ckpt-step 7
