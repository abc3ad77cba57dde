#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Text to dataset: MB/s of text with bpe-tokenize at 1 and 2 workers, and of tiktoken and Hugging
# Face tokenizers on the same lines in the same run (both read the JSON, encode, and keep no
# output). The text is a sample repeated to 256 MB; MB is 10^6 bytes of the texts' UTF-8, which is
# what all of them tokenize. The median of three runs, and the lowest and highest.
#   bench/pipeline.sh BUILD_FOLDER SHARED_DATA_FOLDER [PYTHON [MEGABYTES]]
# First the results are checked: the ids of 1 and 2 workers and of the Python tokenizers are the
# same.
set -eu
build=$1 data=$2 python=${3-} megabytes=${4-256}
work=$(mktemp -d "${TMPDIR:-/tmp}/pipeline.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
sample=$data/enwiki-sample.jsonl
: >"$work/in.jsonl"
while [ "$(stat -c %s "$work/in.jsonl")" -lt $((megabytes * 1000000)) ]; do
  cat "$sample" >>"$work/in.jsonl"
done
text_bytes=$("$build/bin/json-extract" -q -0 "$work/in.jsonl" | tr -d '\0' | wc -c)
echo "commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(
  sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(
  nproc) processors, load $(cut -d' ' -f1 /proc/loadavg)"
echo "input $(stat -c %s "$work/in.jsonl") bytes of JSON, $text_bytes bytes of text"

vocabulary=(--vocab-file "$data/gpt2-vocab.json" --merge-file "$data/gpt2-merges.txt"
  --no-pad-vocab-size)
report() { # name, seconds of three runs
  local name=$1
  shift
  printf '%s\n' "$@" | sort -n | awk -v name="$name" -v bytes="$text_bytes" '
    {s[NR] = $1}
    END {
      printf "%-28s %8.1f MB/s (median of %d; %.1f to %.1f)\n", name,
          bytes / s[int((NR + 1) / 2)] / 1e6, NR, bytes / s[NR] / 1e6, bytes / s[1] / 1e6
    }'
}
for workers in 1 2; do
  wall=() cpu=()
  for _ in 1 2 3; do
    rm -f "$work"/out_*
    TIMEFORMAT='%R %U %S'
    times=$({ time "$build/bin/bpe-tokenize" -q "${vocabulary[@]}" --append-eod \
      -w $workers -o "$work/out" --input "$work/in.jsonl"; } 2>&1)
    wall+=("$(echo "$times" | cut -d' ' -f1)")
    cpu+=("$(echo "$times" | awk '{print $2 + $3}')")
  done
  sha256sum <"$work/out_text_document.bin" >"$work/digest.$workers"
  report "bpe-tokenize, $workers worker(s)" "${wall[@]}"
  report "  by processor time" "${cpu[@]}"
done
cmp "$work/digest.1" "$work/digest.2"
peak=$("$python" -c '
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)' \
  "$build/bin/bpe-tokenize" -q -f "${vocabulary[@]}" --append-eod -w 2 -o "$work/out" \
  --input "$work/in.jsonl" 2>/dev/null || echo '?')
echo "peak memory, 2 workers       $peak MiB"
[ -n "$python" ] || exit 0
cat >"$work/peers.py" <<'END'
import array, json, sys, time
import tiktoken
from tokenizers import Tokenizer

path, data, ours = sys.argv[1:]
vocab = json.load(open(data + "/gpt2-vocab.json", encoding="utf-8"))
table = {}
printable = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
for place, byte in enumerate(printable + [b for b in range(256) if b not in printable]):
    table[chr(byte) if byte in printable else chr(256 + place - len(printable))] = byte
eod = "<|endoftext|>"
ranks = {bytes(table[c] for c in token): i for token, i in vocab.items() if token != eod}
pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
tik = tiktoken.Encoding("gpt2", pat_str=pattern, mergeable_ranks=ranks, special_tokens={eod: 50256})
hf = Tokenizer.from_file(data + "/gpt2-tokenizer.json")
hf.encode_special_tokens = True
ids = array.array("H")
ids.frombytes(open(ours, "rb").read(4000000))
made = []
for line in open(path, encoding="utf-8"):
    text = json.loads(line)["text"]
    one = tik.encode_ordinary(text)
    assert one == hf.encode(text).ids
    made += one + ([50256] if one else [])
    if len(made) > 1000000:
        break
size = min(len(made), len(ids))
assert made[:size] == list(ids)[:size], "ids differ"
lines = []
total = 0
for line in open(path, encoding="utf-8"):
    lines.append(line)
    total += len(line)
    if total > 40e6:  # a part is enough for a rate
        break
peers = ("tiktoken", tik.encode_ordinary), ("tokenizers", lambda text: hf.encode(text).ids)
for name, encode in peers:
    seconds = []
    size = sum(len(json.loads(line)["text"].encode()) for line in lines)
    for _ in range(3):
        start = time.perf_counter()
        for line in lines:
            text = json.loads(line)["text"]
            encode(text)
        seconds.append((time.perf_counter() - start) / size)
    rates = sorted(1e-6 / s for s in seconds)
    print("%-28s %8.1f MB/s (median of 3; %.1f to %.1f), one thread" %
          (name, rates[1], rates[0], rates[2]))
END
RAYON_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false "$python" "$work/peers.py" "$work/in.jsonl" \
  "$data" "$work/out_text_document.bin"
