# Makefile.dist's training as a SLURM job: after status 75 it is requeued under its own number, as
# often as allowed, and jobs that wait for it keep waiting. The trainer is a stand-in that stops
# twice, or always. Skipped where SLURM does not start.
. "$(dirname "$0")/dist_prelude"
. "$(dirname "$0")/slurm_prelude"
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
head -n 20 "$GOLDEN/tools/corpus.jsonl" >lines.jsonl
dist() {
  make -s -j2 -f "$dist" "${settings[@]}" INPUT=lines.jsonl POLL=0.3 LAUNCH=slurm "$@" 2>>errors
}

ls "$(dist WORK=work hf)" || cat errors
jobs_and_restarts() {
  echo "numbers of jobs: $(cut -d' ' -f1 started | sort -u | wc -l), restarts: $(
    cut -d' ' -f2 started | paste -sd' ')"
}
jobs_and_restarts
status_of work | awk '{ print $1, $2 }'
rm started && touch never

run dist WORK=short TRAIN_RESTARTS=1 model
jobs_and_restarts
status_of short | awk '$1 == "model" { $3 = ""; print }'
squeue -h
