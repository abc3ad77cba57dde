#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The instruction levels of a machine: tests at every level that it has, MB/s of text at each, and of several processes at once.
#   bench/levels.sh pack BUILD SHARED_DATA CORPORA OUT.tar.gz   makes static programs of BUILD's libgristmill_tok.a; with them
#                                                               what the tests read, and 10 MB of each corpus
#   bench/levels.sh run OUT.tar.gz                              on the other machine: needs bash, tar, gzip and nothing else
# TOK_FUZZ_SECONDS (60): how long random texts are encoded. TOK_FUZZ_SEED: from which seed.
set -euo pipefail
pack() {
  local data=$2 corpora=$3 out=$4 corpus source
  local library=$1/libgristmill_tok.a
  source=$(cd "$(dirname "$0")/.." && pwd)
  # Tests look for their files in folders named at compile time: here, those of the package.
  link() { # PROGRAM SOURCES... [LIBRARIES...]
    g++ -std=c++20 -O2 -static -I"$source" '-DGOLDEN_DIR="golden"' '-DSHARED_DATA_DIR="data"' -o "$folder/$1" "${@:2}" "$library" \
      -licuuc -licudata -lcrypto -ldl -lpthread
  }
  link pretokenize_test "$source"/tests/tok/{boundaries,pretokenize}_test.cc -lgmock -lgtest -lgtest_main
  link encode_test "$source"/tests/tok/{encode_test,tok_data}.cc -lgmock -lgtest -lgtest_main
  link tokenize_bench "$source/bench/tokenize.cc"
  strip "$folder"/*
  mkdir -p "$folder/data" "$folder/golden/tok"
  cp "$data"/{gpt2-vocab.json,gpt2-merges.txt,gpt-neox-20b-tokenizer.json,cl100k_base.tiktoken.gz} "$folder/data"
  cp "$data"/{wikitext2-valid.txt,wagahai-ja.txt,enwiki-sample.jsonl} "$folder/data"
  cp "$source/tests/golden/tok/pretokenize.txt" "$folder/golden/tok"
  for corpus in "$corpora"/*.txt; do head -c 10000000 "$corpus" | { iconv -c -f UTF-8 -t UTF-8 || true; } 2>/dev/null >"$folder/$(basename "$corpus")"; done
  tar -C "$folder" -czf "$out" .
  ls -l "$out"
}
run() {
  tar -C "$folder" -xzf "$1"
  cd "$folder"
  sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1
  echo "$(nproc) processors; $(grep -m1 ^flags /proc/cpuinfo | tr ' ' '\n' | grep -E '^(avx2|avx512bw|avx512_vbmi2|vaes)$' | tr '\n' ' ')"
  ./pretokenize_test --gtest_brief=1
  TOK_FUZZ_SECONDS=${TOK_FUZZ_SECONDS-60} ./encode_test --gtest_brief=1
  for corpus in *.txt; do
    for level in plain avx2 avx512bw avx512vbmi2; do
      TOK_FORCE_LEVEL=$level ./tokenize_bench 8 "$corpus" - data/gpt2-vocab.json data/gpt2-merges.txt
    done | awk -v corpus="$corpus" -F'[][":, ]+' '
      {level = $3; first = best = 0
       for (i = 1; i <= NF; ++i) {
         if ($i == "bytes") bytes = $(i + 1)
         if ($i == "wall_s") {first = $(i + 1); best = 1e9; for (j = i + 2; $j + 0 > 0; ++j) if ($j < best) best = $j}
       }
       printf "%-16s %-12s first %7.0f MB/s  steady %7.0f MB/s\n", corpus, level, bytes / first / 1e6, bytes / best / 1e6}'
  done
  local corpus processes
  corpus=$(ls *.txt | head -1)
  for processes in 1 2 4 8 16 32; do
    [ "$processes" -le "$(nproc)" ] || break
    for _ in $(seq "$processes"); do ./tokenize_bench 60 "$corpus" - data/gpt2-vocab.json data/gpt2-merges.txt & done | awk -v n="$processes" -F'[][":, ]+' '
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
[ $# -ge 2 ] || { sed -n '3,7p' "$0" >&2; exit 2; }
"$@"
