# Configurations of Llama-like models as GPT-NeoX has them, in the form of its releases up to August
# 2024 and since: they plan with the parameters that the models are published with. A small one of
# each form trains, and becomes a mistral or a llama.
. "$(dirname "$0")/prelude"
make-dataset d 200 60 1
# What all of them say; then FILE, its sizes and its MLP.
model() {
  cat >"$1" <<END
{"num_layers": $2, "hidden_size": $3, "num_attention_heads": $4, "seq_length": $5,
 "max_position_embeddings": $5, $6
 "pipe_parallel_size": 1, "model_parallel_size": 1, "make_vocab_size_divisible_by": 1,
 "pos_emb": "rotary", "rotary_pct": 1, "no_weight_tying": true, "gpt_j_residual": false,
 "output_layer_parallelism": "column", "norm": "rmsnorm", "rms_norm_epsilon": 1.0e-5,
 "scaled_upper_triang_masked_softmax_fusion": true, "bias_gelu_fusion": false,
 "use_bias_in_norms": false, "use_bias_in_attn_linear": false, $7}
END
}
cat >run.yml <<'END'
{"optimizer": {"type": "Adam", "params": {"lr": 0.0002, "betas": [0.9, 0.95], "eps": 1.0e-8}},
 "zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": 1, "train_iters": 2,
 "hidden_dropout": 0, "attention_dropout": 0, "weight_decay": 0.1, "lr_decay_style": "constant",
 "log_interval": 1, "eval_iters": 0, "data_path": "d"}
END
echo 'use_bias_in_mlp: false' >no-bias.yml
plan() { # FILE...: 32,000 tokens, as these models have them
  trainer --config "$@" run.yml --vocab-size 32000 --bf16 --dry-run --device cuda \
    --nproc-per-node 8 >plan 2>said
  local status=$?
  printf '%s: %s, exit %s\n' "$*" "$(grep -oE '^parameters +[0-9,]+' plan | tr -s ' ')" $status
  grep -vE 'rms_norm_epsilon|no effect here' said
}
old='"mlp_type": "llama", "activation": "silu"'
new='"activation": "swiglu", "mlp_multiple_of": 256'
flash='"attention_config": [[["flash"], 48]],'
model llama-7B.yml 32 4096 32 2048 "" "$old"
model llama-13B.yml 40 5120 40 2048 "" "$old"
model codellama-34B.yml 48 8192 64 4096 "\"num_kv_heads\": 8, $flash" "$old"
model mistral-7B.yml 32 4096 32 8192 "\"num_kv_heads\": 8, \"intermediate_size\": 14336,
  \"sliding_window_width\": 4096, $flash" "$old"
model llama2-7B.yml 32 4096 32 4096 '"intermediate_size": 32768,' "$new"
model llama2-70B.yml 80 8192 64 4096 '"num_kv_heads": 8, "intermediate_size": 86016,' "$new"
echo "- up to August 2024"
for name in llama-7B llama-13B codellama-34B mistral-7B; do plan $name.yml; done
echo "- since: biases in the MLP, unless use_bias_in_mlp is false; Llama has none"
for name in llama2-7B llama2-70B; do plan $name.yml; plan $name.yml no-bias.yml; done
echo "- small ones"
small() { # NAME FILE...
  trainer --config "${@:2}" run.yml --vocab-size 1024 --device cpu --nproc-per-node 2 \
    --tensor-model-parallel-size 2 --save "$1" >log 2>said || cat said
  grep -cE ' iteration +[0-9]+/' log
  megatron-to-hf --quiet --input "$1" --output "$1-hf"
  keys='model_type|intermediate_size|num_key_value_heads|sliding_window|mlp_bias|attention_bias'
  grep -hE "\"($keys)\"" "$1-hf/config.json"
}
model old.yml 2 32 4 16 "\"num_kv_heads\": 2, \"intermediate_size\": 40,
  \"sliding_window_width\": 8, $flash" "$old"
model new.yml 2 32 4 16 "" '"activation": "swiglu", "mlp_multiple_of": 4'
small old old.yml
small new new.yml
small without new.yml no-bias.yml
