#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Measures every figure about tokenizing in one command: gathers the corpora, builds, compares ids
# with every peer, then times.
#   bench/tokenize.sh BUILD SHARED_DATA FOLDER PYTHON [FILE...]
# BUILD is a release build folder; FOLDER keeps the corpora (about 3 GB); PYTHON has numpy, awkward,
# gigatoken, tiktoken, tokenizers, quicktok-v1, and megatron-core, transformers for the whole
# processes; FILEs are corpora of your own, documents each ended by a NUL byte. Each heading names
# the instruction level; bench/levels.sh times them all.
set -euo pipefail
[ $# -ge 4 ] || { sed -n '/^set /q; /^#   bench/,$p' "$0" >&2; exit 2; }
build=$1 data=$2 folder=$3 python=$4
shift 4
here=$(dirname "$0")
"$here/corpora.sh" "$folder" "$data/enwiki-sample.jsonl" "$data/wagahai-ja.txt"
cmake --build "$build" --target tokenize_bench bpe-tokenize
zcat -f "$data/cl100k_base.tiktoken.gz" >"$folder/cl100k_base.tiktoken"
vocabulary=(--vocab "$data/gpt2-vocab.json" --merges "$data/gpt2-merges.txt"
  --tokenizer "$data/gpt2-tokenizer.json")
"$python" "$here/tokenize.py" --program "$build/tokenize_bench" "${vocabulary[@]}" \
  --ranks "$folder/cl100k_base.tiktoken" \
  "$folder"/{wiki,code,novel,english,languages}.txt "$@"
whole=$folder/whole.jsonl
[ -e "$whole" ] || while [ ! -e "$whole" ] || [ "$(stat -c %s "$whole")" -lt 1000000000 ]; do
  cat "$data/enwiki-sample.jsonl" >>"$whole"
done
"$python" "$here/whole.py" --program "$build/bin/bpe-tokenize" "${vocabulary[@]}" "$whole"
