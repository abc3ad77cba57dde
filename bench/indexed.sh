#!/usr/bin/env bash
# Speed of merge-datasets and shuffle-index against cp of the same bytes, in GB/s, median of RUNS (spread in brackets).
#   bench/indexed.sh [BUILD_FOLDER [MIB [FOLDER]]]     default: build/release, 1024 MiB, a temporary folder
# The answers are checked first: the merged tokens are the parts' joined, every checksum holds, a shuffled dataset
# made in two passes equals the one made in one. cp and the tools both end with their bytes on the disk (sync, fsync).
set -eu
build=$(cd "${1:-build/release}" && pwd)
mib=${2:-1024}
folder=$(mktemp -d "${3:-${TMPDIR:-/tmp}}/bench_indexed.XXXXXX")
trap 'rm -rf "$folder"' EXIT
PATH=$build/bin:$PATH
runs=${RUNS:-3}
commit=$(git -C "$(dirname "$0")" rev-parse --short HEAD 2>/dev/null || echo unknown)
echo "commit $commit, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) cores, $(df --output=fstype "$folder" | tail -1)"
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

# measure NAME BYTES CLEANUP COMMAND...
measure() {
  local name=$1 size=$2 cleanup=$3 times=() begin end
  shift 3
  for ((run = 0; run < runs; ++run)); do
    rm -rf $cleanup
    sync
    begin=$(date +%s%N)
    "$@" >/dev/null
    end=$(date +%s%N)
    times+=($((end - begin)))
  done
  printf '%s\n' "${times[@]}" | sort -n | awk -v name="$name" -v size="$size" '
    {t[NR] = $1}
    END {printf "%-34s %6.2f GB/s  [%.2f to %.2f]  %d bytes in %.3f s\n", name, size / t[int((NR + 1) / 2)], size / t[NR], size / t[1], size,
         t[int((NR + 1) / 2)] / 1e9}'
}
copy() { mkdir copy && cp part_?.bin part_?.idx copy/ && sync copy/*; }
measure "cp of the parts, and sync" "$all" copy copy
measure "merge-datasets" "$all" 'm.*' merge-datasets -q part_1 part_2 part_3 part_4 --output-prefix m
measure "merge-datasets --verify" "$all" 'm.*' merge-datasets -q part_1 part_2 part_3 part_4 --output-prefix m --verify
measure "shuffle-index --rewrite, one pass" "$all" 's.*' shuffle-index -q --data-path all --rewrite s --mem 64G
measure "shuffle-index --rewrite, two passes" "$all" 's.*' shuffle-index -q --data-path all --rewrite s --mem $((mib / 4 + 1))M
index() { shuffle-index -q --data-path all --split 1 --seq-length 64 --samples $((documents * 8)),0,0 --data-cache-path cache --tokenizer-type NullTokenizer; }
rm -rf cache && index >/dev/null
arrays=$(cat cache/*.npy | wc -c)
measure "shuffle-index, bytes of the arrays" "$arrays" cache index
