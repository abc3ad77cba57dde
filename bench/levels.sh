#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The instruction levels of a machine: tests at every level that it has, MB/s of text at each, and of several processes at once.
#   bench/levels.sh pack BUILD SHARED_DATA CORPORA OUT.tar.gz   collects static programs, GPT-2's vocabulary and 10 MB of each corpus
#   bench/levels.sh run OUT.tar.gz                              on the other machine: needs bash, tar, gzip and nothing else
set -euo pipefail
pack() {
  local build=$1 data=$2 corpora=$3 out=$4 corpus
  g++ -O2 -static "$build"/CMakeFiles/pretokenize_test.dir/tests/tok/*.o -o "$folder/pretokenize_test" \
    "$build/libgristmill_tok.a" -lgmock -lgtest -lgtest_main -licuuc -licudata -ldl -lpthread
  g++ -O2 -static "$build/CMakeFiles/tokenize_bench.dir/bench/tokenize.cc.o" -o "$folder/tokenize_bench" \
    "$build/libgristmill_tok.a" -licuuc -licudata -ldl -lpthread
  strip "$folder"/*
  cp "$data/gpt2-vocab.json" "$data/gpt2-merges.txt" "$folder"
  for corpus in "$corpora"/*.txt; do head -c 10000000 "$corpus" | { iconv -c -f UTF-8 -t UTF-8 || true; } 2>/dev/null >"$folder/$(basename "$corpus")"; done
  tar -C "$folder" -czf "$out" .
  ls -l "$out"
}
run() {
  tar -C "$folder" -xzf "$1"
  cd "$folder"
  sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1
  echo "$(nproc) processors; $(grep -m1 ^flags /proc/cpuinfo | tr ' ' '\n' | grep -E '^(avx2|avx512bw|avx512_vbmi2|vaes)$' | tr '\n' ' ')"
  TOK_FUZZ_SECONDS=${TOK_FUZZ_SECONDS-60} ./pretokenize_test --gtest_brief=1
  for corpus in *.txt; do
    [ "$corpus" != gpt2-merges.txt ] || continue
    for level in plain avx2 avx512bw avx512vbmi2; do
      TOK_FORCE_LEVEL=$level ./tokenize_bench 8 "$corpus" - gpt2-vocab.json gpt2-merges.txt
    done | awk -v corpus="$corpus" -F'[][":, ]+' '
      {level = $3; first = best = 0
       for (i = 1; i <= NF; ++i) {
         if ($i == "bytes") bytes = $(i + 1)
         if ($i == "wall_s") {first = $(i + 1); best = 1e9; for (j = i + 2; $j + 0 > 0; ++j) if ($j < best) best = $j}
       }
       printf "%-16s %-12s first %7.0f MB/s  steady %7.0f MB/s\n", corpus, level, bytes / first / 1e6, bytes / best / 1e6}'
  done
  local corpus processes
  corpus=$(ls *.txt | grep -v merges | head -1)
  for processes in 1 2 4 8 16 32; do
    [ "$processes" -le "$(nproc)" ] || break
    for _ in $(seq "$processes"); do ./tokenize_bench 60 "$corpus" - gpt2-vocab.json gpt2-merges.txt & done | awk -v n="$processes" -F'[][":, ]+' '
      {for (i = 1; i <= NF; ++i) {
         if ($i == "bytes") bytes = $(i + 1)
         if ($i == "wall_s") {sum = count = 0; for (j = i + 21; $j + 0 > 0; ++j) {sum += $j; ++count}}
       }
       total += bytes * count / sum / 1e6} END {printf "%2d processes at once: %7.0f MB/s\n", n, total}'
    wait
  done
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
[ $# -ge 2 ] || { sed -n '3,5p' "$0" >&2; exit 2; }
"$@"
