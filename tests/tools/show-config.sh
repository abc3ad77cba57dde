# --show-config shows what other files set, too; what is shown is a configuration
# that says the same again.
. "$(dirname "$0")/prelude"
model="--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --train-iters 10"
model="$model --lr 1e-3 --data-path d"
cat >ds.json <<'JSON'
{"train_micro_batch_size_per_gpu": 2, "train_batch_size": 8, "gradient_clipping": 0.5,
 "zero_optimization": {"stage": 2},
 "steps_per_print": 7}
JSON
cat >c.yml <<'YAML'
{"num-layers": 6, "hidden_size": 64, "num-attention-heads": 4, "seq_length": 32,
 "max-position-embeddings": 32, "train_micro_batch_size_per_gpu": 4,
 "gradient_accumulation_steps": 3, "gradient_clipping": 0.25, "train-iters": 100, "data_path": "d",
 "optimizer": {"type": "Adam", "params": {"lr": 6.0e-4, "betas": [0.9, 0.95]}}}
YAML
keys='num-layers|micro-batch-size|global-batch-size|clip-grad|zero-stage|adam-beta2|lr'
lines="^($keys|deepspeed_config|neox-config) ="
for files in "$model --deepspeed_config ds.json" "--config c.yml" \
  "--config c.yml --num-layers 2"; do
  echo "== $files" | sed "s/$model //"
  trainer $files --show-config >shown.toml; echo "exit $?"
  grep -E "$lines" shown.toml
  trainer --config shown.toml --show-config 2>/dev/null | cmp - shown.toml && echo "the same again"
done
echo '{"zero_optimization": {"stage": 9}}' >ds.json
run trainer $model --deepspeed_config ds.json --show-config
