# What hf-to-megatron writes for Megatron: the dtype and the names that were asked for, and a note
# where one file has no room for the tokenizer.
set -u
G=$GOLDEN/convert/families/llama
types() { grep -a -o '"dtype":"[A-Z0-9]*"' "$1/model.safetensors" | sort -u; }

for dtype in keep fp32 fp16 bf16; do
  hf-to-megatron --input "$G" --output "m-$dtype" --to megatron --dtype $dtype
  megatron-to-hf --quiet --input "m-$dtype" --output "h-$dtype"
  echo "$dtype: $(types "h-$dtype" | tr '\n' ' ')"
  hf-to-megatron --quiet --input "$G" --output "t-$dtype" --dtype $dtype
  megatron-to-hf --quiet --input "t-$dtype" --output "th-$dtype"
  cmp "h-$dtype/model.safetensors" "th-$dtype/model.safetensors" &&
    echo "the same through the trainer's form"
done
echo "the folder's own: $(types "$G" | tr '\n' ' ')"
for layout in legacy core; do
  hf-to-megatron --input "$G" --output "l-$layout" --to megatron --layout $layout
  names=$(grep -a -r -o 'decoder.layers.0.mlp.linear_fc1\|layers.0.mlp.dense_h_to_4h' "l-$layout" |
    sed 's/.*://' | sort -u | tr '\n' ' ')
  echo "$layout: $names"
done
hf-to-megatron --input "$G" --output one.pt --to megatron
cp -r "$G" quantized && chmod -R u+w quantized
sed -i 's/"F32"/"I32"/g; s/"BF16"/"I16"/g; s/"F16"/"I16"/g' quantized/*.safetensors
for form in trainer megatron; do
  hf-to-megatron --input quantized --output "q-$form" --to $form || echo "status $?"
done
