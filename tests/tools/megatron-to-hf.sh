# The program's steps and messages: what it writes, what it refuses and with which status, the
# conversion back, and that no code of a hostile file runs. Tensors themselves are compared in
# tests/convert.
set -u
G=$GOLDEN/convert/gpt2
vocab="--vocab-file $G/vocab.json --merge-file $G/merges.txt"
try() { "$@" 2>&1 | sed "s|$GOLDEN|GOLDEN|g; s|$WORK|WORK|g"; echo "status ${PIPESTATUS[0]}"; }

echo "- a folder, its files, and a second run"
try megatron-to-hf --input "$G/v3.pt" --output hf $vocab
ls hf
try megatron-to-hf --input "$G/v3.pt" --output hf $vocab
try megatron-to-hf --input "$G/v1.pt" --output hf $vocab --force --verify "the cat" \
  --report report.json
grep -c '"equal": true' report.json
echo "the cat in the hat" >text.txt
try megatron-to-hf --input "$G/v1.pt" --output hf $vocab --force --verify text.txt \
  --report report.json
grep '"text"' report.json
echo "- every road gives the same weights"
for c in v1.pt v2.pt norm.pt te.pt core.pt tp2pp2 virtual deepspeed; do
  megatron-to-hf --input "$G/$c" --output "out/$c" $vocab || echo "$c failed"
  cmp hf/model.safetensors "out/$c/model.safetensors"
done
for layout in legacy core; do
  megatron-to-hf --input "$G/v1.pt" --output "meg/$layout" $vocab --to megatron --layout $layout
  cat "meg/$layout/latest_checkpointed_iteration.txt"; echo
  megatron-to-hf --input "meg/$layout" --output "back/$layout"
  cmp hf/model.safetensors "back/$layout/model.safetensors"
  cmp hf/tokenizer.json "back/$layout/tokenizer.json"
done
hf-to-megatron --input hf --output start
megatron-to-hf --input start --output tuned
cmp hf/model.safetensors tuned/model.safetensors && cmp hf/config.json tuned/config.json
try hf-to-megatron --input hf --output start
hf-to-megatron --input hf --output meg/from-hf --to megatron
megatron-to-hf --input meg/from-hf --output back/from-hf
cmp hf/model.safetensors back/from-hf/model.safetensors
megatron-to-hf --input "$G/v3.pt" --output shards $vocab --max-shard-size 8KB
ls shards | grep -c safetensors

echo "- the fp32 weights behind DeepSpeed's models of 16 bits"
M=$GOLDEN/convert/main_parameters
for c in plain_tp2 pipe_bf16 neox_pipe neox_sequential; do
  try megatron-to-hf --input "$M/$c/run" --output "main/$c" --vocab-size 21 --dtype fp32 --quiet
  megatron-to-hf --input "$M/$c/exact/global_step5" --output "exact/$c" --vocab-size 21 --quiet
  cmp "main/$c/model.safetensors" "exact/$c/model.safetensors"
done
mkdir bare
cp -r "$M/pipe_bf16/run" bare/of16
rm bare/of16/*/*_optim_states.pt
try megatron-to-hf --input bare/of16 --output x --vocab-size 21 --dtype fp32
cp -r "$M/plain_tp2/run" bare/lost
rm bare/lost/*/zero_pp_rank_1_mp_rank_00_optim_states.pt
try megatron-to-hf --input bare/lost --output y --vocab-size 21 --dtype fp32
rm -r x
echo "- the vocabulary is not guessed"
try megatron-to-hf --input "$G/v3.pt" --output x
try megatron-to-hf --input "$G/v3.pt" --output x $vocab --vocab-size 260
try megatron-to-hf --input "$G/v3.pt" --output x --vocab-size 265
try megatron-to-hf --input "$G/v3.pt" --output x --vocab-size 264
try megatron-to-hf --input start --output z --vocab-size 260
try megatron-to-hf --input hf --output z --vocab-size 260
# The checkpoint itself says how many tokens it has.
hf-to-megatron --quiet --input "$GOLDEN/convert/families/llama" --output small
try megatron-to-hf --input small --output z --vocab-size 47
echo "- what cannot be read"
try megatron-to-hf --input "$G/v0.pt" --output y $vocab
try megatron-to-hf --input nothing --output y $vocab
try megatron-to-hf --input "$G" --output y $vocab
head -c 30000 "$G/v3.pt" >cut.pt
try megatron-to-hf --input cut.pt --output y $vocab
printf '\x80\x02cos\nsystem\nX\x0b\x00\x00\x00touch ownedq\x01\x85R.' >body
{
  printf '\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.'
  printf '\x80\x02}X\x0d\x00\x00\x00little_endian\x88s.'
  cat body
} >hostile.pt
try megatron-to-hf --input hostile.pt --output y $vocab
[ -e owned ] && echo "the file ran"
ls y 2>/dev/null
echo "- a report is refused before the conversion"
try megatron-to-hf --input hf --output z --verify "the cat" --report report.json
try megatron-to-hf --input hf --output z --verify "the cat" --report missing/report.json
try megatron-to-hf --input hf --output z --verify "the cat" --report hf --force
try megatron-to-hf --input hf --output z --verify "the cat" --report z/config.json --force
ls z 2>/dev/null
try megatron-to-hf --input hf --output z --verify "the cat" --report z/report.json
mkdir z/additional_chat_templates
try megatron-to-hf --input hf --output z --verify "the cat" \
  --report z/additional_chat_templates/a.jinja --force
grep -c '"equal": true' z/report.json
echo "- wrong command lines"
try megatron-to-hf --input a --output y --verify ""
try megatron-to-hf --input a --output y --verify a --report ""
try megatron-to-hf --output y
try megatron-to-hf --input a --output y --vocab-file v
try megatron-to-hf --input a --output y --arch bert
try megatron-to-hf --input a --output y --dtype int8
try megatron-to-hf --input a --output y --max-shard-size 5XB
