#!/usr/bin/env bash
# Speed of merge-datasets and shuffle-index against cp of the same bytes: GB/s and ratios of time,
# medians of RUNS rounds (default 5), each of which runs every command once.
#   bench/indexed.sh [BUILD_FOLDER [MIB [FOLDER]]]
#                      default: build/release, 1024 MiB, a temporary folder
# The results are checked first: the merged tokens are the parts' joined, every checksum holds, a
# shuffled dataset made in two passes equals the one made in one. The tools end when their bytes are
# on disk, like cp with sync but unlike plain cp.
set -eu
build=$(cd "${1:-build/release}" && pwd)
mib=${2:-1024}
folder=$(mktemp -d "${3:-${TMPDIR:-/tmp}}/bench_indexed.XXXXXX")
trap 'rm -rf -- "$folder"' EXIT
PATH=$build/bin:$PATH
runs=${RUNS:-5}
commit=$(git -C "$(dirname "$0")" rev-parse --short HEAD 2>/dev/null || echo unknown)
echo "commit $commit, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(
  nproc) cores, $(df --output=fstype "$folder" | tail -1)"
cd "$folder"

# Documents of 0 to 1000 tokens of 2 bytes: about 1 kB each.
documents=$((mib * 1024 * 1024 / 1000 / 4))
for i in 1 2 3 4; do make-dataset part_$i $documents 1000 $i; done
bytes() { cat "$@" | wc -c; }
all=$(bytes part_?.bin part_?.idx)

merge-datasets -q part_1 part_2 part_3 part_4 --output-prefix all
cat part_1.bin part_2.bin part_3.bin part_4.bin | cmp - all.bin
inspect-dataset verify all
shuffle-index -q --data-path all --rewrite one --mem 64G
shuffle-index -q --data-path all --rewrite two --mem $((mib / 4 + 1))M
cmp one.bin two.bin
cmp one.idx two.idx
inspect-dataset verify one
rm -f one.* two.*

# measure NAME BYTES CLEANUP COMMAND...: one round of one command.
measure() {
  local name=$1 size=$2 cleanup=$3 begin
  shift 3
  rm -rf $cleanup
  sync
  begin=$(date +%s%N)
  "$@" >/dev/null
  printf '%s\t%s\t%s\n' "$name" "$size" $(($(date +%s%N) - begin)) >>times
  rm -rf $cleanup
}
copy() { mkdir copy && cp part_?.bin part_?.idx copy/; }
copy_and_sync() { copy && sync copy/*; }
merge() { merge-datasets -q part_1 part_2 part_3 part_4 --output-prefix m "$@"; }
rewrite() { shuffle-index -q --data-path all --rewrite s --mem "$1"; }
index() {
  shuffle-index -q --data-path all --split 1 --seq-length 64 --samples $((documents * 8)),0,0 \
    --data-cache-path cache --tokenizer-type NullTokenizer
}
index >/dev/null
arrays=$(cat cache/*.npy | wc -c)
for ((run = 0; run < runs; ++run)); do
  measure "cp of the parts" "$all" copy copy
  measure "cp of the parts, and sync" "$all" copy copy_and_sync
  measure "merge-datasets" "$all" 'm.*' merge
  measure "merge-datasets --verify" "$all" 'm.*' merge --verify
  measure "shuffle-index --rewrite, one pass" "$all" 's.*' rewrite 64G
  measure "shuffle-index --rewrite, two passes" "$all" 's.*' rewrite $((mib / 4 + 1))M
  measure "shuffle-index, bytes of the arrays" "$arrays" cache index
done
sort -t "$(printf '\t')" -k1,1 -k3,3n times |
  awk -F '\t' -v middle=$(((runs + 1) / 2)) -v runs="$runs" '
  {
    ++n[$1]; size[$1] = $2; most[$1] = $3
    if (n[$1] == 1) least[$1] = $3
    if (n[$1] == middle) median[$1] = $3
  }
  END {
    print "| command | GB/s | slowest to fastest | seconds | time over cp | " \
        "time over cp and sync |\n| --- | --- | --- | --- | --- | --- |"
    cp = median["cp of the parts"]; sync = median["cp of the parts, and sync"]
    for (name in n)
      printf "| %s | %.2f | %.2f to %.2f | %.3f | %.2f | %.2f |\n", name,
          size[name] / median[name], size[name] / most[name], size[name] / least[name],
          median[name] / 1e9, median[name] / cp, median[name] / sync | "sort"
  }'
