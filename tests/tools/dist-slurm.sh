# Makefile.dist through SLURM, a real one of two nodes: killing a job, a node, and make, and running it again, ends in the
# bytes of a clean run on one machine. Skipped where SLURM is not installed or does not start.
. "$(dirname "$0")/prelude"
command -v make flock >/dev/null || { echo "skipped: no make or flock"; exit 77; }
cluster=$GOLDEN/../tools/slurm_cluster
dist=$GOLDEN/../../Makefile.dist
for program in sbatch slurmctld slurmd munged; do
  PATH=$PATH:/usr/sbin command -v $program >/dev/null || { echo "skipped: $program is not installed (slurm-wlm, munge)"; exit 77; }
done
trap '"$cluster" stop "$WORK/slurm"' EXIT
environment=$("$cluster" start "$WORK/slurm") || { echo "skipped: SLURM does not start here"; exit 77; }
eval "$environment"
mkdir bin
for program in wiki-extract bpe-tokenize merge-datasets; do # as they are, but none begins while there is a file "hold"
  printf '#!/bin/sh\nwhile [ "$1" != --version ] && [ -e %s/hold ]; do sleep 0.1; done\nexec %s "$@"\n' "$WORK" "$(command -v $program)" >bin/$program
  chmod +x bin/$program
done
cp "$GOLDEN/tools/vocab.json" "$GOLDEN/tools/merges.txt" .
if [ -f "$SHARED/enwiki-sample.xml.bz2" ]; then
  cp "$SHARED/enwiki-sample.xml.bz2" dump.xml.bz2
else
  { sed -n '1,/<\/siteinfo>/p' "$GOLDEN/tools/wiki.xml"
    for _ in $(seq 200); do sed '1,/<\/siteinfo>/d;/^<\/mediawiki>/d' "$GOLDEN/tools/wiki.xml"; done
    echo '</mediawiki>'; } | bzip2 -1 >dump.xml.bz2
fi
dist() { make -s -j2 -f "$dist" INPUT=dump.xml.bz2 SHARDS_PER_FILE=6 VOCAB_FILE=vocab.json MERGE_FILE=merges.txt TOKENIZE_FLAGS=--no-pad-vocab-size BIN="$WORK/bin" POLL=0.3 "$@" 2>>errors; }
digest() { (cd "$1" && sha256sum dataset-*/*.bin dataset-*/*.idx dataset-*/shards.tsv); }
running() { # waits until so many shards are being made, at most a minute
  for _ in $(seq 600); do
    [ "$(find work -name '*.running' -size +0 2>/dev/null | wc -l)" -lt "$1" ] || return 0
    sleep 0.1
  done
  echo "no $1 jobs run"
}
dist WORK=clean dataset >/dev/null && digest clean >clean.digest
dist LAUNCH=slurm WORK=undisturbed dataset >/dev/null && digest undisturbed | diff - clean.digest && echo "SLURM: the same bytes"

# make is killed while its jobs run; run again it waits for them and goes on. Meanwhile a task is cancelled, and a node dies.
touch hold
setsid make -s -f "$dist" INPUT=dump.xml.bz2 SHARDS_PER_FILE=6 VOCAB_FILE=vocab.json MERGE_FILE=merges.txt TOKENIZE_FLAGS=--no-pad-vocab-size BIN="$WORK/bin" POLL=0.3 LAUNCH=slurm WORK=work dataset >/dev/null 2>&1 &
running 4
{ kill -9 -- -$! && wait $!; } 2>/dev/null
squeue -h -r -o %j | sort -u | wc -l
make -s -f "$dist" status WORK=work | awk '{ print $1, $2 }' | sort | uniq -c
dist LAUNCH=slurm WORK=work dataset >result &
make=$!
scancel "$(squeue -h -r -t R -o '%F_%K' | head -n 1)"
"$cluster" kill-node "$WORK/slurm" $((RANDOM % 2 + 1)) >&2
rm hold
wait $make && digest work | diff - clean.digest && echo "a task, a node and make killed: the same bytes"
find work -name '*.part' -o -name '*.tmp'
make -s -f "$dist" status WORK=work | awk 'NR > 1 { print $1, $2 }' | sort | uniq -c

# What cannot succeed is told, once, with its reason, and what depends on it is not run.
echo '{"text": 7}' >bad.jsonl
run dist LAUNCH=slurm WORK=bad INPUT=bad.jsonl dataset
make -s -f "$dist" status WORK=bad | awk '{ $3 = ""; print }'
grep '^Makefile.dist' errors
squeue -h
