# An export in a checkpoint's own folder: the checkpoint is read there, and --force replaces the
# export. Of each form: the root, and the folder of the one checkpoint.
set -u
once() { megatron-to-hf --quiet --input c $size --output "$@"; }
for form in gpt2/tp2pp2 gpt2/tp2pp2/iter_0000010 gpt2/virtual gpt2/deepspeed \
  gpt2/deepspeed/global_step4 gpt2/zero3 gpt2/zero3/global_step9 torch_dist/llama_tp2 \
  neox/sequential/checkpoints neox/sequential/checkpoints/global_step7 \
  neox/parallel_tp2/checkpoints/global_step7 whole_job/llama/checkpoint \
  whole_job/llama/checkpoint/iter_0000150; do
  cp -r "$GOLDEN/convert/$form" c
  size="--vocab-size 200"
  case $form in whole_job*) size= ;; esac
  once first && once c && cp -r c kept
  printf x >c/model.safetensors
  once again && cmp first/model.safetensors again/model.safetensors &&
    once c --force && diff -r kept c && echo "$form: read"
  rm -rf c first again kept
done
echo "- transformers' own Trainer has DeepSpeed's files beside its model"
size=
cp -r "$GOLDEN/convert/families/llama" c
once first
cp -r "$GOLDEN/convert/gpt2/deepspeed/." c
echo '{}' >c/trainer_state.json
once again && cmp first/model.safetensors again/model.safetensors && echo "its model: read"
