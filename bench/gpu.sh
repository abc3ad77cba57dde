#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Everything that needs a GPU, on a machine without this tree: build it here, run it there.
#   bench/gpu.sh pack BUILD OUT.tar.gz   collects the programs of a CUDA build, their tests and goldens, and the libraries beside CUDA's
#   bench/gpu.sh run OUT.tar.gz PART...  on the machine with GPUs: needs bash, tar, gzip, CUDA 13's libraries, cuDNN 9, NCCL 2 and
#                                        python3 with torch, which may bring these libraries
# Parts, in the order given; `one` and `many` put PyTorch beside ours in the same call:
#   check    every test with the label gpu; those of several GPUs run where there are as many
#   start    seconds from the start of the process to the first step (bench/first-step.sh)
#   one      tokens/s, power and clock of each model on one GPU; the fused product beside cuBLASLt's
#   many     each layout on all GPUs: data parallel, ZeRO, tensor, pipeline, state on the host
# SECONDS_EACH (10): how long each load is held. LAYERS_22B (8): layers of the slice of GPT-22B.
set -euo pipefail
TESTS=(ops_cuda_test model_cuda_test trainer_program_cuda_test comm_cuda_test layout_cuda_test)

pack() {
  local build source out=$2 name
  build=$(cd "$1" && pwd) source=$(cd "$(dirname "$0")/.." && pwd)
  mkdir -p "$folder/build/release/tests" "$folder/build/release/bin" "$folder/lib"
  cmake --build "$build" --target bench-kernels
  cp "$build"/bin/{trainer,make-dataset} "$folder/build/release/bin"
  cp "$build"/bench-{step,kernels} "$folder/build/release"
  for name in "${TESTS[@]}"; do cp "$build/tests/$name" "$folder/build/release/tests"; done
  find "$folder/build" -type f -exec strip {} + 2>/dev/null || true
  find "$folder/build" -type f -perm -u+x -exec ldd {} + | awk '$2 == "=>" { print $3 }' | sort -u |
    grep -vE '/lib(c|m|dl|rt|pthread|cuda|cudart|cudnn.*|cublas.*|nccl|nvrtc.*|nvidia-.*)\.so' | xargs -I{} cp -L {} "$folder/lib"
  (cd "$source" && cp -r --parents bench/first-step.sh bench/step/torch_step.py tests/golden/trainer "$folder")
  # Tests look for goldens and programs where they were built.
  echo "$source" >"$folder/source"
  tar -C "$folder" -czf "$out" .
  ls -l "$out"
}

ours() { echo; echo "bench-step --engine $*"; bench-step --engine --choices "$folder/choices" --seconds "$each" "$@" || true; }
torch() { # GPUS ARGUMENTS...
  local gpus=$1 launch=(python3)
  shift
  [ "$gpus" = 1 ] || launch=(python3 -m torch.distributed.run --nproc-per-node "$gpus")
  "${launch[@]}" "$folder/bench/step/torch_step.py" --seconds "$each" "$@" 2>"$folder/torch.err" || tail -n 3 "$folder/torch.err"
}

check() {
  local name failed=0
  for name in "${TESTS[@]}"; do
    echo "$name"
    "$folder/build/release/tests/$name" --gtest_brief=1 >"$folder/said" 2>&1 || failed=1
    grep -vE 'SKIPPED|: Skipped$|^needs [0-9]+ GPU|^Running main' "$folder/said" || true
  done
  return $failed
}
start() { "$folder/bench/first-step.sh" -n 5 -b "$folder/build/release/bin"; }
one() {
  bench-kernels --only dgrad || true
  ours --model 124M,345M,774M,1558M,1.3B
  ours --model 6.7B --lean
  torch 1 --model 124M,345M,774M,1558M,1.3B
  ours --model 124M,1558M
}
many() {
  local model
  for model in 124M 1.3B; do
    ours --gpus "$gpus" --model $model --overlap
    ours --gpus "$gpus" --model $model --overlap --zero-stage 1
    torch "$gpus" --shard ddp --model $model
    torch "$gpus" --shard fsdp --model $model
  done
  ours --gpus "$gpus" --model 6.7B --overlap --zero-stage 2
  ours --gpus "$gpus" --model 6.7B --overlap --zero-stage 3
  torch "$gpus" --shard fsdp --model 6.7B
  ours --gpus "$gpus" --model 13B --overlap --zero-stage 1 --cpu-offload --recompute full
  ours --gpus "$gpus" --model 13B --overlap --zero-stage 3
  torch "$gpus" --shard fsdp --model 13B
  ours --gpus "$gpus" --model 6.7B --tensor-model-parallel-size "$gpus" --sequence-parallel
  ours --gpus "$gpus" --model 22B --layers "${LAYERS_22B:-8}" --tensor-model-parallel-size "$gpus" --sequence-parallel
  ours --gpus "$gpus" --model 6.7B --pipeline-model-parallel-size "$gpus" --microbatches 16
  ours --gpus "$gpus" --model 6.7B --pipeline-model-parallel-size "$gpus" --microbatches 16 --zero-bubble
  ours --gpus "$gpus" --model 6.7B --pipeline-model-parallel-size "$gpus" --microbatches 16 --chunks 2
}

run() {
  local part nvidia source
  tar -C "$folder" -xzf "$1"
  shift
  nvidia=$(python3 -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null || true)
  [ -z "$nvidia" ] || LD_LIBRARY_PATH=$(printf '%s:' "$nvidia"/*/lib)${LD_LIBRARY_PATH:-}
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}:$folder/lib PATH=$folder/build/release/bin:$folder/build/release:$PATH
  source=$(cat "$folder/source")
  [ -e "$source" ] || { mkdir -p "$(dirname "$source")" && ln -s "$folder" "$source" && made=$source; }
  nvidia-smi --query-gpu=name,driver_version,power.limit,clocks.max.sm --format=csv,noheader
  gpus=$(nvidia-smi -L | wc -l)
  for part; do
    echo "== $part"
    "$part"
  done
}

folder=$(mktemp -d) made='' each=${SECONDS_EACH:-10}
trap 'rm -rf "$folder"; [ -z "$made" ] || rm -f "$made"' EXIT
[ $# -ge 3 ] || { sed -n '4,13p' "$0" >&2; exit 2; }
"$@"
