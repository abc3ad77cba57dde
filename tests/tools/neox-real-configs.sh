# GPT-NeoX's and Pythia's own configurations plan with the parameters that their authors state.
# Skipped where they are not there.
. "$(dirname "$0")/prelude"
[ -d "$SHARED/neox" ] || { echo "skipped: no configurations in $SHARED/neox"; exit 77; }
make-dataset d 200 60 1
cp "$SHARED/gpt-neox-20b-tokenizer.json" 20B_tokenizer.json
cp "$SHARED/gpt2-vocab.json" vocab.json && cp "$SHARED/gpt2-merges.txt" merges.txt
plan() { # RANKS TOKENIZER-FLAGS... -- FILE...: the command line gives the paths, and takes
         # precedence
  local ranks=$1 flags=(); shift
  while [ "$1" != -- ]; do flags+=("$1"); shift; done
  shift
  trainer --config "$@" "${flags[@]}" --dry-run --device cuda --nproc-per-node "$ranks" >plan 2>said
  local status=$?
  printf '%s: %s, exit %s\n' "$(basename -a "$@" | tr '\n' ' ')" \
    "$(grep -oE '^parameters +[0-9,]+' plan | tr -s ' ')" $status
}
PYTHIA="--vocab-file 20B_tokenizer.json --train-data-path d --valid-data-path d --test-data-path d"
for size in 70m 160m 410m 1b 1.4b 2.8b 6.9b; do
  plan 2 $PYTHIA -- "$SHARED/neox/pythia-$size.yml"
done
# As it was published it lacks a comma, which no YAML reader accepts.
plan 4 $PYTHIA -- "$SHARED/neox/pythia-12b.yml"; sed "s|$SHARED/neox/||" said
sed 's/\[\[\["flash"\], 36\]\]/&,/' "$SHARED/neox/pythia-12b.yml" >pythia-12b-mended.yml
plan 4 $PYTHIA -- pythia-12b-mended.yml
plan 8 --vocab-file 20B_tokenizer.json --data-path d -- "$SHARED/neox/neox-20B.yml"
plan 1 --vocab-file vocab.json --merge-file merges.txt --data-path d \
  -- "$SHARED/neox/neox-125M.yml" "$SHARED/neox/neox-local_setup.yml"
plan 1 --vocab-file vocab.json --merge-file merges.txt \
  --train-data-path d --valid-data-path d --test-data-path d \
  -- "$SHARED/neox/neox-slurm_125M.yml" "$SHARED/neox/neox-eleutherai_cluster.yml"
plan 2 --vocab-file 20B_tokenizer.json --data-path d -- "$SHARED/neox/neox-finetune-6-9B.yml"
sed "s|$SHARED/neox/||" said
echo "- the smallest trains"
sed 's/"enabled": true,/"enabled": false,/; s/"train-iters": .*/"train-iters": 1,/
  s/"lr-decay-iters": .*//; s/"eval-iters": .*/"eval-iters": 0,/
  s/"log-interval": .*/"log-interval": 1,/' \
  "$SHARED/neox/pythia-70m.yml" >small.yml
trainer --config small.yml $PYTHIA --device cpu --micro-batch-size 1 --seq-length 64 \
  >log 2>said; echo "exit $?"
grep -cE '^ \[.*\] iteration +1/ +1 ' log
keys='activation|init-method-std|output-layer-init-method-std|lr|min-lr|adam-beta2'
keys="$keys|parallel-residual|rotary-percent|extra-save-iters|save-interval|recompute-granularity"
grep -E "^($keys) =" log
