# Makefile.dist's training as a SLURM job: after status 75 it goes back into the queue under its own number, as often as
# allowed, and what waits for it waits on. The trainer is a stand-in that stops twice, or always. Skipped where SLURM does not start.
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
for program in wiki-extract bpe-tokenize merge-datasets; do ln -s "$(command -v $program)" bin; done
cat >bin/trainer <<END
#!/bin/sh
echo "\$SLURM_JOB_ID \${SLURM_RESTART_COUNT:-0}" >>$WORK/started
[ ! -e $WORK/never ] && [ \$(wc -l <$WORK/started) -ge 3 ] || exit 75
END
cat >bin/megatron-to-hf <<END
#!/bin/sh
while [ "\$1" != --output ]; do shift; done
mkdir -p "\$2" && touch "\$2/config.json"
END
chmod +x bin/trainer bin/megatron-to-hf
cp "$GOLDEN/tools/vocab.json" "$GOLDEN/tools/merges.txt" .
head -n 20 "$GOLDEN/tools/corpus.jsonl" >lines.jsonl
dist() { make -s -j2 -f "$dist" INPUT=lines.jsonl VOCAB_FILE=vocab.json MERGE_FILE=merges.txt TOKENIZE_FLAGS=--no-pad-vocab-size BIN="$WORK/bin" POLL=0.3 LAUNCH=slurm "$@" 2>>errors; }

ls "$(dist WORK=work hf)" || cat errors
echo "numbers of jobs: $(cut -d' ' -f1 started | sort -u | wc -l), restarts: $(cut -d' ' -f2 started | paste -sd' ')"
make -s -f "$dist" status WORK=work | awk '{ print $1, $2 }'
rm started && touch never

run dist WORK=short TRAIN_RESTARTS=1 model
echo "numbers of jobs: $(cut -d' ' -f1 started | sort -u | wc -l), restarts: $(cut -d' ' -f2 started | paste -sd' ')"
make -s -f "$dist" status WORK=short | awk '$1 == "model" { $3 = ""; print }'
squeue -h
