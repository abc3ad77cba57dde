#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The instruction levels and the cores of a machine: tests at every level that it has, MB/s of
# text at each, of several processes at once, and of bpe-tokenize as a whole process with 1, 2,
# 4, 8, 16, 32, ... workers.
#   bench/levels.sh pack BUILD SHARED_DATA CORPORA OUT.tar.gz
#                      takes BUILD's libraries and bpe-tokenize, with every shared library and the
#                      loader, what the tests read, and 10 MB of each corpus
#   bench/levels.sh run OUT.tar.gz [all|levels|whole]
#                      on the other machine: needs bash, tar, gzip, coreutils, sed, grep, awk
# TOK_FUZZ_SECONDS (60): how long random texts are encoded. TOK_FUZZ_SEED: from which seed.
# WHOLE_BYTES (2000000000): size of the JSON lines (the sample, repeated), and ROUNDS (3) of them
# for each number of workers. WHOLE_FOLDER: folder for them and the dataset; default /dev/shm if it
# has enough space, otherwise the temporary folder.
set -euo pipefail
pack() {
  local build=$1 data=$2 corpora=$3 out=$4 corpus source
  source=$(cd "$(dirname "$0")/.." && pwd)
  # Tests look for their files in folders named at compile time: here, those of the package.
  link() { # PROGRAM SOURCES... [LIBRARIES...]
    g++ -std=c++20 -O2 -I"$source" '-DGOLDEN_DIR="golden"' '-DSHARED_DATA_DIR="data"' \
      -o "$folder/$1" "${@:2}" "$build/libgristmill_tok.a" \
      -licuuc -lcrypto
  }
  link pretokenize_test "$source"/tests/tok/{boundaries,pretokenize}_test.cc \
    -lgmock -lgtest -lgtest_main
  link encode_test "$source"/tests/tok/{encode_test,tok_data}.cc -lgmock -lgtest -lgtest_main
  link tokenize_bench "$source/bench/tokenize.cc"
  cp "$build/bin/bpe-tokenize" "$folder"
  mkdir -p "$folder/data" "$folder/golden/tok" "$folder/lib"
  # The other machine may have another C library, or none of the libraries: it uses those
  # of this one.
  ldd "$folder"/{pretokenize_test,encode_test,tokenize_bench,bpe-tokenize} |
    sed -nE 's/^[^/]*(\/[^ ]+) \(0x.*/\1/p' | sort -u |
    xargs cp -L -t "$folder/lib"
  mv "$folder"/lib/ld-linux-x86-64.so.2 "$folder/lib/loader"
  strip "$folder"/{pretokenize_test,encode_test,tokenize_bench,bpe-tokenize}
  cp "$data"/{gpt2-vocab.json,gpt2-merges.txt,gpt-neox-20b-tokenizer.json} \
    "$data/cl100k_base.tiktoken.gz" "$folder/data"
  cp "$data"/{wikitext2-valid.txt,wagahai-ja.txt,enwiki-sample.jsonl} "$folder/data"
  cp "$source/tests/golden/tok/pretokenize.txt" "$folder/golden/tok"
  for corpus in "$corpora"/*.txt; do
    head -c 10000000 "$corpus" | { iconv -c -f UTF-8 -t UTF-8 || true; } 2>/dev/null \
      >"$folder/$(basename "$corpus")"
  done
  git -C "$source" rev-parse --short HEAD >"$folder/commit"
  tar -C "$folder" -czf "$out" .
  ls -l "$out"
}
# Runs a program of the package.
packed() { "$folder/lib/loader" --library-path "$folder/lib" "$folder/$1" "${@:2}"; }
levels() {
  local corpus level processes
  packed pretokenize_test --gtest_brief=1
  TOK_FUZZ_SECONDS=${TOK_FUZZ_SECONDS-60} packed encode_test --gtest_brief=1
  for corpus in *.txt; do
    for level in plain avx2 avx512bw avx512vbmi2; do
      TOK_FORCE_LEVEL=$level packed tokenize_bench 8 "$corpus" - data/gpt2-vocab.json \
        data/gpt2-merges.txt
    done | awk -v corpus="$corpus" -F'[][":, ]+' '
      {level = $3; first = best = 0
       for (i = 1; i <= NF; ++i) {
         if ($i == "bytes") bytes = $(i + 1)
         if ($i == "wall_s") {
           first = $(i + 1); best = 1e9
           for (j = i + 2; $j + 0 > 0; ++j) if ($j < best) best = $j
         }
       }
       printf "%-16s %-12s first %7.0f MB/s  steady %7.0f MB/s\n", corpus, level,
           bytes / first / 1e6, bytes / best / 1e6}'
  done
  corpus=$(printf '%s\n' *.txt | head -1)
  for ((processes = 1; processes <= $(nproc); processes *= 2)); do
    for _ in $(seq "$processes"); do
      packed tokenize_bench 60 "$corpus" - data/gpt2-vocab.json data/gpt2-merges.txt &
    done | awk -v n="$processes" -F'[][":, ]+' '
      {for (i = 1; i <= NF; ++i) {
         if ($i == "bytes") bytes = $(i + 1)
         if ($i == "wall_s") {
           sum = count = 0
           for (j = i + 21; $j + 0 > 0; ++j) {sum += $j; ++count}
         }
       }
       total += bytes * count / sum / 1e6}
       END {printf "%2d processes at once: %7.0f MB/s\n", n, total}'
    wait
  done
}
# Where WHOLE_BYTES and the dataset made of them have room.
room_for_whole() {
  local place
  for place in "${WHOLE_FOLDER:-/dev/shm}" "${TMPDIR:-/tmp}"; do
    [ -w "$place" ] && [ "$(df --output=avail -B1 "$place" | tail -1)" -gt $((bytes * 2)) ] &&
      echo "$place" && return
  done
  echo "levels.sh: no folder has $((bytes * 2)) bytes free" >&2
  return 1
}
whole() {
  local bytes=${WHOLE_BYTES-2000000000} workers_list=() workers round seconds digest made place
  place=$(room_for_whole)
  big=$(mktemp -d "$place/levels.XXXXXX")
  local sample=data/enwiki-sample.jsonl size
  size=$(stat -c %s "$sample")
  for _ in {1..32}; do cat "$sample"; done >"$folder/sample32"
  while [ "$(stat -c %s "$big/in.jsonl" 2>/dev/null || echo 0)" -lt $((bytes - 32 * size)) ]; do
    cat "$folder/sample32" >>"$big/in.jsonl"
  done
  bytes=$(stat -c %s "$big/in.jsonl")
  tokenize() { # WORKERS
    packed bpe-tokenize -q -f --vocab-file data/gpt2-vocab.json --merge-file data/gpt2-merges.txt \
      --append-eod -w "$1" -o "$big/out" --input "$big/in.jsonl"
  }
  for ((workers = 1; workers <= $(nproc); workers *= 2)); do workers_list+=("$workers"); done
  tokenize "$(nproc)" # pages of the dataset's place are there once
  echo "bpe-tokenize, whole process, $bytes bytes of JSON lines in ${place}; MB of input, $(
    stat -c %s "$big/out_text_document.bin") bytes of tokens"
  for round in $(seq "${ROUNDS-3}"); do
    for workers in "${workers_list[@]}"; do
      TIMEFORMAT='%R %U %S'
      seconds=$({ time tokenize "$workers"; } 2>&1)
      echo "$workers $seconds"
      [ "$round" = 1 ] || continue
      made=$(cat "$big"/out_text_document.{idx,bin} | cksum)
      if [ "${digest:=$made}" != "$made" ]; then
        echo "levels.sh: $workers workers gave other bytes than one" >&2
        exit 1
      fi
    done
  done | sort -k1,1n -k2,2n | awk -v bytes="$bytes" '
    {
      all[$1] = all[$1] " " $2; n[$1]++; at[$1, n[$1]] = $2
      cpu[$1, n[$1]] = $3 + $4; system_[$1, n[$1]] = $4
      if (!seen[$1]++) order[++rows] = $1
    }
    END {for (r = 1; r <= rows; ++r) {
      w = order[r]; m = int((n[w] + 1) / 2); if (r == 1) one = at[w, m]
      printf "%2d workers %8.0f MB/s, %5.2f of one worker; best %8.0f; seconds%s; " \
             "processor %.2f, of it system %.2f\n",
             w, bytes / at[w, m] / 1e6, one / at[w, m], bytes / at[w, 1] / 1e6,
             all[w], cpu[w, m], system_[w, m]}}'
}
run() {
  tar -C "$folder" -xzf "$1"
  cd "$folder"
  sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1
  echo "$(nproc) processors; $(grep -m1 ^flags /proc/cpuinfo | tr ' ' '\n' |
    grep -E '^(avx2|avx512bw|avx512_vbmi2|vaes)$' | tr '\n' ' '); load $(
    cut -d' ' -f1 /proc/loadavg); commit $(cat commit)"
  case ${2-all} in
    levels | whole) "$2" ;;
    all) levels && whole ;;
    *) echo "levels.sh: all, levels or whole, not $2" >&2; exit 2 ;;
  esac
}
folder=$(mktemp -d)
big=
trap 'rm -rf -- "$folder" ${big:+"$big"}' EXIT
[ $# -ge 2 ] || { sed -n '/^set /q; 3,$p' "$0" >&2; exit 2; }
"$@"
