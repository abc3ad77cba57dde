# Makefile.dist through SLURM, a real one of two nodes: killing a job, a node, and make, and
# running it again, ends in the bytes of a clean run on one machine. Skipped where SLURM is not
# installed or does not start.
. "$(dirname "$0")/dist_prelude"
. "$(dirname "$0")/slurm_prelude"
# As they are, but none begins while there is a file "hold".
for program in wiki-extract bpe-tokenize merge-datasets; do
  {
    echo '#!/bin/sh'
    echo "while [ \"\$1\" != --version ] && [ -e $WORK/hold ]; do sleep 0.1; done"
    echo "exec $(command -v $program) \"\$@\""
  } >bin/$program
  chmod +x bin/$program
done
if [ -f "$SHARED/enwiki-sample.xml.bz2" ]; then
  cp "$SHARED/enwiki-sample.xml.bz2" dump.xml.bz2
else
  { sed -n '1,/<\/siteinfo>/p' "$GOLDEN/tools/wiki.xml"
    for _ in $(seq 200); do sed '1,/<\/siteinfo>/d;/^<\/mediawiki>/d' "$GOLDEN/tools/wiki.xml"; done
    echo '</mediawiki>'; } | bzip2 -1 >dump.xml.bz2
fi
settings+=(INPUT=dump.xml.bz2 SHARDS_PER_FILE=6 POLL=0.3)
dist() { make -s -j2 -f "$dist" "${settings[@]}" "$@" 2>>errors; }
running() { # waits until that number of shards are being made, at most a minute
  for _ in $(seq 600); do
    [ "$(find work -name '*.running' -size +0 2>/dev/null | wc -l)" -lt "$1" ] || return 0
    sleep 0.1
  done
  echo "no $1 jobs run"
}
dist WORK=clean dataset >/dev/null && digest clean >clean.digest
dist LAUNCH=slurm WORK=undisturbed dataset >/dev/null && digest undisturbed |
  diff - clean.digest && echo "SLURM: the same bytes"

# make is killed while its jobs run; run again it waits for them and goes on. Meanwhile a task is
# cancelled, and a node dies.
touch hold
setsid make -s -f "$dist" "${settings[@]}" LAUNCH=slurm WORK=work dataset >/dev/null 2>&1 &
running 4
{ kill -9 -- -$! && wait $!; } 2>/dev/null
squeue -h -r -o %j | sort -u | wc -l
status_of work | awk '{ print $1, $2 }' | sort | uniq -c
dist LAUNCH=slurm WORK=work dataset >result &
make=$!
scancel "$(squeue -h -r -t R -o '%F_%K' | head -n 1)"
"$cluster" kill-node "$WORK/slurm" $((RANDOM % 2 + 1)) >&2
rm hold
wait $make && digest work | diff - clean.digest &&
  echo "a task, a node and make killed: the same bytes"
find work -name '*.part' -o -name '*.tmp'
status_of work | awk 'NR > 1 { print $1, $2 }' | sort | uniq -c

# A job that cannot succeed is reported once, with its reason, and what depends on it is not run.
echo '{"text": 7}' >bad.jsonl
run dist LAUNCH=slurm WORK=bad INPUT=bad.jsonl dataset
status_of bad | awk '{ $3 = ""; print }'
grep '^Makefile.dist' errors
squeue -h
