#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Everything that needs a GPU, on a machine without this tree: build it here, run it there.
#   bench/gpu.sh pack BUILD OUT.tar.xz   collects the programs of a CUDA build, their tests and
#                                        goldens, and the libraries beside CUDA's
#   bench/gpu.sh run OUT.tar.xz PART...  on the machine with GPUs: needs bash, tar, xz, CUDA 13's
#                                        libraries, cuDNN 9, NCCL 2 and python3 with torch, which
#                                        may bring these libraries
# Parts, in the order given; one, data and zero also time PyTorch in the same call:
#   check    single, and several and ranks if there are enough GPUs
#   single   every test with the label gpu that needs one
#   several  the tests of communication and layouts, which need several
#   ranks    the trainer program's tests of many ranks; RANKS_FILTER: other cases
#   hosts    two or four GPUs play two hosts, which are killed, come back and are told to stop
#   sanitize compute-sanitizer over our kernels in the operations' tests, SANITIZE_SECONDS (150) a
#            tool; racecheck and initcheck over bf16 without the products, which they cannot run;
#            SANITIZE_FILTER: other cases
#   start    seconds from the start of the process to the first step (bench/first-step.sh)
#   one      tokens/s, power and clock of each model on one GPU; the fused product compared with
#            cuBLASLt's
#   data     data parallel and ZeRO-1 on all GPUs beside one process on each GPU at the same time,
#            and beside torch's DDP and FSDP2; the same in FP8, beside torchao if it is there
#   zero     6.7B and 13B with their state divided among all GPUs, in bf16 and FP8, compared with
#            FSDP2; as much of it as the GPUs' memory holds
#   offload  13B with ZeRO-1, its state on the host
#   warm     compiles PyTorch's side of data and zero into its cache, which a later call uses
#   tensor   6.7B and a slice of 22B, tensor and sequence parallel over all GPUs
#   pipeline 6.7B over all GPUs in the three schedules
#   muon     one GPU's models and, with several, 1.3B divided among them: a step with Muon and one
#            with AdamW, alternately
#   fp8      one GPU's models and slices of 6.7B and Llama-3-8B: ours in bf16 and in FP8,
#            torch.compile's bf16 and torchao's FP8 (needs torchao on PYTHONPATH); then the other
#            recipes
#   norm     FP8 with norms that are written and norms that the rounding pass applies: their tests,
#            the passes alone, steps alternately
#   loss     bench/fp8/loss.sh, LOSS_MODEL (124M) over LOSS_TOKENS (20000000), for LOSS_RECIPES
#            ("delayed tensorwise rowwise blockwise") and SEEDS (1234); LOSS_TEXT: a folder with
#            corpus, vocab.json and merges.txt; LOSS_OUT (loss-results) keeps dataset and curves
#   program  two minutes of `trainer` with a log line each ten steps, TensorBoard, evaluation and
#            saves, beside bench-step
#   hold     one GPU's models with algorithms chosen in bursts and at the power limit, alternately
#   plan     the card's table by plan-training --calibrate, and the planner's held-out cases on one
#            and two GPUs (bench/plan.sh)
#   regret   layouts of three models on four GPUs (of four models on two), predicted and measured,
#            in REGRET_SECONDS (300) at most
#   save     6.7B on all GPUs: steps while a checkpoint is written, and the seconds from the kill of
#            a rank to the next step, from disk and from memory (bench/lost_rank.py)
# SAID: a folder that keeps what the tests said, also of those that did not end.
# SECONDS_EACH (10): how long each load runs. LAYERS_22B (8): layers of the slice of GPT-22B.
set -euo pipefail
ONE=(ops_cuda_test model_cuda_test trainer_program_cuda_test gemm_choices_test) # each on one GPU
PROGRAMS=(trainer plan-training generate make-dataset bpe-tokenize shuffle-index megatron-to-hf)
TESTS=("${ONE[@]}" comm_cuda_test layout_cuda_test trainer_program_test)

pack() {
  local build source out=$2 name
  build=$(cd "$1" && pwd) source=$(cd "$(dirname "$0")/.." && pwd)
  mkdir -p "$folder/build/release/tests" "$folder/build/release/bin" "$folder/lib"
  cmake --build "$build" --target "${PROGRAMS[@]}" bench-step bench-kernels "${TESTS[@]}"
  for name in "${PROGRAMS[@]}"; do cp "$build/bin/$name" "$folder/build/release/bin"; done
  cp "$build"/libfault_shim.so "$folder/build/release"
  cp "$build"/bench-{step,kernels} "$folder/build/release"
  for name in "${TESTS[@]}"; do cp "$build/tests/$name" "$folder/build/release/tests"; done
  find "$folder/build" -type f -exec strip {} + 2>/dev/null || true
  find "$folder/build" -type f -perm -u+x -exec ldd {} + | awk '$2 == "=>" { print $3 }' | sort -u |
    grep -vE '/lib(c|m|dl|rt|pthread|cuda|cudart|cudnn.*|cublas.*|nccl|nvrtc.*|nvidia-.*)\.so' |
    xargs -I{} cp -L {} "$folder/lib"
  (cd "$source" &&
    cp -r --parents bench/first-step.sh bench/plan.sh bench/plan.py bench/plan-cases.jsonl \
      bench/lost_rank.py bench/step/{torch_step,program_rate}.py bench/curve/samples.py \
      bench/fp8/{loss.sh,curves.py,torch_loss.py} tests/golden/trainer "$folder")
  # Tests look for goldens and programs where they were built.
  printf '%s\n' "$source" "$build" >"$folder/source"
  # The programs share most of their code: a window as large as all of them finds it again.
  tar -C "$folder" -c . | xz -T1 --lzma2=preset=1,dict=192MiB >"$out"
  ls -l "$out"
}

ours() {
  echo
  echo "bench-step --engine $*"
  bench-step --engine --choices "$folder/choices" --seconds "$each" "$@" || true
}
torch() { # GPUS ARGUMENTS...
  local gpus=$1 launch=(python3)
  shift
  [ "$gpus" = 1 ] || launch=(python3 -m torch.distributed.run --nproc-per-node "$gpus")
  "${launch[@]}" "$folder/bench/step/torch_step.py" --seconds "$each" "$@" 2>"$folder/torch.err" ||
    tail -n 3 "$folder/torch.err"
}

check() {
  local failed=0
  single || failed=1
  [ "$gpus" -lt 2 ] || several || failed=1
  [ "$gpus" -lt 2 ] || ranks || failed=1
  return $failed
}
# Side by side, each on its own where there are as many GPUs.
single() {
  local name failed=0 gpu=0
  for name in "${ONE[@]}"; do
    CUDA_VISIBLE_DEVICES=$gpu begin tested "$name"
    gpu=$(((gpu + 1) % gpus))
    [ "$gpus" -gt 1 ] || all_ended || failed=1
  done
  all_ended || failed=1
  return $failed
}
several() {
  local pair failed=0
  [ "$gpus" -gt 1 ] || { echo "one GPU: nothing of several"; return 1; }
  tested comm_cuda_test || failed=1
  # Cases of two GPUs on every pair at the same time; then those of four.
  for ((pair = 0; pair < gpus / 2; ++pair)); do
    CUDA_VISIBLE_DEVICES=$((2 * pair)),$((2 * pair + 1)) \
      begin shard $pair $((gpus / 2)) layout_cuda_test
  done
  all_ended || failed=1
  [ "$gpus" -lt 4 ] || tested layout_cuda_test --gtest_filter='*Gpus4*' || failed=1
  return $failed
}
# Left out: two hosts of network namespaces, which would use a GPU twice, and a host without GPUs.
ranks() {
  local filter="ManyTest.*:LostRankTest.*:-LostRankTest.TwoHosts:\
ManyTest.ADeviceThatIsGoneIsToldToAll"
  program_test "${RANKS_FILTER:-$filter}"
}
hosts() {
  program_test "ManyHostsTest.KilledRanks*:ManyHostsTest.AHostThatDies*:ManyHostsTest.*Stop*:\
ManyHostsTest.AHostWithOneRank*:ManyHostsTest.AKillAtTheVeryEnd*:MemoryHostsTest.AHostThatIsLost*"
}
# The trainer program's cases of FILTER. Most of their time is the start of processes, so eight
# parts run at a time.
program_test() { # FILTER
  local part parts=8
  for ((part = 0; part < parts; ++part)); do
    TRAINER_TEST_DEVICE=cuda TRAINER_TEST_RANKS=$((gpus < 4 ? 2 : 4)) MANY_FAULT_ROUNDS=2 \
      begin shard $part $parts trainer_program_test --gtest_filter="$1"
  done
  all_ended
}
shard() { # NUMBER OF PROGRAM ARGUMENTS...: a part of a program's cases
  GTEST_SHARD_INDEX=$1 GTEST_TOTAL_SHARDS=$2 SAID_AS=.$1 tested "${@:3}"
}
begun=()
begin() { # COMMAND...: in the background
  "$@" &
  begun+=($!)
}
# Waits for what has begun. Whether all of it ended well.
all_ended() {
  local pid failed=0
  for pid in "${begun[@]}"; do wait "$pid" || failed=1; done
  begun=()
  return $failed
}
tested() { # PROGRAM ARGUMENTS...
  local status=0 begin=$SECONDS said=${SAID:-$folder}/said.$1${SAID_AS:-}
  "$folder/build/release/tests/$1" "${@:2}" >"$said" 2>&1 || status=$?
  echo "$1: status $status after $((SECONDS - begin)) s"
  grep -vE 'SKIPPED|: Skipped$|^needs [0-9]+ GPU|^Running main|^\[ RUN|^\[  +OK|^\[---|^$' \
    "$said" || true
  return $status
}
sanitize() {
  local name=ops_cuda_test tool filter status
  for tool in memcheck racecheck initcheck; do
    filter='*bf16-*Product*:*Linear*:*CaptureReplays*:*MoreThanTwo*:*Attention*'
    [ $tool != memcheck ] || filter='*-*MoreThanTwo*:*RefusesWhatIsWrong*'
    filter=${SANITIZE_FILTER:-$filter}
    status=0
    timeout "${SANITIZE_SECONDS:-150}" compute-sanitizer --tool $tool --error-exitcode 9 \
      --kernel-name kns=3ops4cuda "$folder/build/release/tests/$name" --gtest_filter="$filter" \
      >"$folder/said.$tool" 2>&1 || status=$?
    echo "$tool: status $status (124: time is up), $(grep -c '  OK ' "$folder/said.$tool") passed"
    grep -E '^=========|FAILED' "$folder/said.$tool" | grep -vE 'Host Frame|backtrace|= *$' |
      cut -c1-160 | sort | uniq -c | sort -rn | head -n 20 || true
  done
}
start() {
  CUDA_VISIBLE_DEVICES=0 "$folder/bench/first-step.sh" -n 5 -b "$folder/build/release/bin"
  [ "$gpus" = 1 ] ||
    "$folder/bench/first-step.sh" -n 5 -b "$folder/build/release/bin" \
      --global-batch-size $((64 * gpus))
}
one() {
  bench-kernels --only dgrad || true
  ours --model 124M,345M,774M,1558M,1.3B
  ours --model 6.7B --lean
  torch 1 --model 124M,345M,774M,1558M,1.3B
  ours --model 124M,1558M
}
# The same load on each GPU by itself, all at once. The sum is what independent GPUs give: what a
# layout on all of them is compared with.
each_alone() {
  local i
  echo
  echo "bench-step --engine $*, on each GPU by itself"
  for ((i = 0; i < gpus; ++i)); do
    touch "$folder/choices" && cp "$folder/choices" "$folder/choices.$i"
    CUDA_VISIBLE_DEVICES=$i bench-step --engine --choices "$folder/choices.$i" --seconds "$each" \
      "$@" >"$folder/said.$i" 2>&1 &
  done
  wait
  for ((i = 0; i < gpus; ++i)); do
    grep 'tokens/s' "$folder/said.$i" || tail -n 5 "$folder/said.$i"
  done
  cp "$folder/choices.0" "$folder/choices"
}
torchao() { python3 -c 'import torchao' 2>/dev/null; }
sharded() { # ARGUMENTS...: FSDP2 in bf16, and in FP8 where torchao is
  torch "$gpus" --shard fsdp "$@"
  ! torchao || torch "$gpus" --shard fsdp "$@" --float8 tensorwise
}
data() {
  local model
  for model in 124M 1.3B; do
    each_alone --model $model
    ours --gpus "$gpus" --model $model --overlap
    ours --gpus "$gpus" --model $model --overlap --zero-stage 1
    ours --gpus "$gpus" --model $model --overlap --zero-stage 1 --no-copy-engines
    ours --gpus "$gpus" --model $model
    torch "$gpus" --shard ddp --model $model
    each_alone --model $model --fp8 delayed
    ours --gpus "$gpus" --model $model --overlap --zero-stage 1 --fp8 delayed-gather
    sharded --model $model
  done
}
zero() {
  local size
  # Memory of the smallest GPU, in MiB: 13B and 6.7B at 8x2048 need more than 80 GB.
  size=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | sort -n | head -n 1)
  local small=(--gpus "$gpus" --model 6.7B --overlap) batch recompute=()
  [ "$size" -gt 100000 ] || recompute=(--recompute full)
  ours "${small[@]}" --zero-stage 3
  ours "${small[@]}" --zero-stage 3 --fp8 delayed-gather
  sharded --model 6.7B
  if [ "$size" -gt 100000 ]; then
    ours "${small[@]}" --zero-stage 1
    ours "${small[@]}" --zero-stage 2
    ours "${small[@]}" --zero-stage 2 --fp8 delayed-gather
    batch=(--micro-batch-size 8)
    ours "${small[@]}" "${batch[@]}" --zero-stage 2
    ours "${small[@]}" "${batch[@]}" --zero-stage 3
    ours "${small[@]}" "${batch[@]}" --zero-stage 2 --fp8 delayed-gather
    sharded --model 6.7B "${batch[@]}"
    ours --gpus "$gpus" --model 13B --overlap --zero-stage 1
    ours --gpus "$gpus" --model 13B --overlap --zero-stage 2
  fi
  ours --gpus "$gpus" --model 13B --overlap --zero-stage 3 "${recompute[@]}"
  ours --gpus "$gpus" --model 13B --overlap --zero-stage 3 --fp8 delayed-gather "${recompute[@]}"
  sharded --model 13B
}
offload() {
  ours --gpus "$gpus" --model 13B --overlap --zero-stage 1 --cpu-offload --recompute full
}
warm() {
  local model each=0
  for model in 1.3B 124M; do torch "$gpus" --warm --shard ddp --model $model; done
  for model in 1.3B 124M 6.7B 13B; do sharded --warm --model $model; done
}
tensor() {
  ours --gpus "$gpus" --model 6.7B --tensor-model-parallel-size "$gpus" --sequence-parallel
  ours --gpus "$gpus" --model 22B --layers "${LAYERS_22B:-8}" \
    --tensor-model-parallel-size "$gpus" --sequence-parallel
}
pipeline() {
  ours --gpus "$gpus" --model 6.7B --pipeline-model-parallel-size "$gpus" --microbatches 16
  ours --gpus "$gpus" --model 6.7B --pipeline-model-parallel-size "$gpus" --microbatches 16 \
    --zero-bubble
  ours --gpus "$gpus" --model 6.7B --pipeline-model-parallel-size "$gpus" --microbatches 16 \
    --chunks 2
}
muon() {
  local model batches
  # A step of 64 Ki tokens, and one of 512 Ki: Muon's products do not grow with it.
  for model in 124M 345M 1.3B; do
    for batches in 4 32; do
      ours --model $model --microbatches $batches
      ours --model $model --microbatches $batches --optimizer muon
    done
  done
  [ "$gpus" -gt 1 ] || return 0
  ours --gpus "$gpus" --model 1.3B --overlap --zero-stage 1
  ours --gpus "$gpus" --model 1.3B --overlap --zero-stage 1 --optimizer muon
  ours --gpus "$gpus" --model 1.3B --overlap --optimizer muon
}
fp8() {
  local model shape recipe
  for model in 124M 345M 774M 1558M 1.3B 6.7B:12 8B:8; do
    shape=(--model "${model%:*}")
    [ "$model" = "${model%:*}" ] || shape+=(--layers "${model#*:}")
    ours "${shape[@]}"
    ours "${shape[@]}" --fp8 delayed
    torch 1 "${shape[@]}"
    torch 1 "${shape[@]}" --float8 tensorwise
  done
  for recipe in tensorwise rowwise blockwise; do ours --model 124M,1558M,1.3B --fp8 $recipe; done
}
norm() {
  local model recipe fused
  tested ops_cuda_test --gtest_filter='*ANormInTheSamePass*:*ResidualNorm*' || true
  tested model_cuda_test --gtest_filter='*NormsInTheRoundingPass*' || true
  bench-kernels --only orm || true # norm, LayerNorm
  for model in 124M 1558M 1.3B; do
    for fused in off on off on; do ours --model $model --fp8 delayed --fp8-fused-norm $fused; done
  done
  for recipe in tensorwise rowwise blockwise; do
    for fused in off on; do ours --model 1.3B --fp8 $recipe --fp8-fused-norm $fused; done
  done
}
hold() {
  local model recipe seconds
  for model in 124M 1558M 1.3B; do
    for recipe in "" delayed; do
      for seconds in 0 0.2 0 0.2; do
        ours --choices "$folder/held$seconds" --hold $seconds --model $model \
          ${recipe:+--fp8 $recipe}
      done
    done
  done
}
loss() {
  local recipes text=${LOSS_TEXT:?a folder with corpus, vocab.json and merges.txt}
  read -ra recipes <<<"${LOSS_RECIPES:-delayed tensorwise rowwise blockwise}"
  BIN=$folder/build/release/bin "$folder/bench/fp8/loss.sh" "${LOSS_OUT:-loss-results}" \
    "$text"/{corpus,vocab.json,merges.txt} "${LOSS_MODEL:-124M}" "${LOSS_TOKENS:-20000000}" \
    "${recipes[@]}"
}
program() {
  local recipe
  make-dataset "$folder/d" 20000 4000 1 no-manifest >/dev/null
  for recipe in "" delayed; do
    ours --model 124M ${recipe:+--fp8 $recipe}
    trainer --num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024 \
      --max-position-embeddings 1024 --micro-batch-size 64 --global-batch-size 64 --bf16 --lr 6e-4 \
      --vocab-size 50257 --attention-dropout 0 --hidden-dropout 0 --data-path "$folder/d" \
      --split 90,10,0 --log-interval 10 --eval-interval 400 --eval-iters 10 --train-iters 1200 \
      --save "$folder/saved" --save-interval 400 --keep-last 1 --tensorboard-dir "$folder/board" \
      --metrics-file "$folder/metrics.jsonl" ${recipe:+--fp8-format hybrid --fp8-recipe $recipe} \
      >"$folder/said.trainer" 2>&1 || tail -n 3 "$folder/said.trainer"
    python3 "$folder/bench/step/program_rate.py" "$folder/metrics.jsonl"
    rm -rf "$folder/saved" "$folder/metrics.jsonl"
  done
}
plan() {
  "$folder/bench/plan.sh" "$folder/build/release/bin" "${PLAN_OUT:-plan-results}" \
    calibrate cases table
  cat "${PLAN_OUT:-plan-results}/card.json"
}
regret() {
  [ "$gpus" = 2 ] || [ "$gpus" = 4 ] || { echo "regret: two or four GPUs"; return; }
  python3 "$folder/bench/plan.py" regret "$gpus" --seconds 1.5 --layouts 5 --spread \
    ${PLAN_CARD:+--card "$PLAN_CARD"} --limit "${REGRET_SECONDS:-300}" --out regret.jsonl || true
  python3 "$folder/bench/plan.py" table regret.jsonl
}
save() {
  local stage=1 size
  size=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | sort -n | head -n 1)
  [ "$size" -gt 100000 ] || stage=3 # 80 GB
  python3 "$folder/bench/lost_rank.py" --gpus "$gpus" --zero-stage $stage || true
}

# A link at a place where the tests look, unless something is there.
stand_in() { # PLACE TARGET
  [ -e "$1" ] || { mkdir -p "$(dirname "$1")" && ln -s "$2" "$1" && made+=("$1"); }
}
run() {
  local part source build
  tar -C "$folder" -xf "$1"
  shift
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder/lib
  export PATH=$folder/build/release/bin:$folder/build/release:$PATH
  [ -z "${SAID:-}" ] || mkdir -p "$SAID"
  { read -r source; read -r build; } <"$folder/source"
  stand_in "$source" "$folder"
  # Where there is a checkout at that place, without a build, or the build was elsewhere.
  stand_in "$build" "$folder/build/release"
  nvidia-smi --query-gpu=name,driver_version,power.limit,clocks.max.sm --format=csv,noheader
  gpus=$(nvidia-smi -L | wc -l)
  for part; do
    echo "== $part"
    "$part"
  done
}

folder=$(mktemp -d) made=() each=${SECONDS_EACH:-10}
trap 'rm -rf -- "$folder" "${made[@]}"' EXIT
[ $# -ge 3 ] || { sed -n '/^set /q; /^#   bench/,$p' "$0" >&2; exit 2; }
"$@"
