# Makefile.dist on one machine: killed at random moments and run again it ends in the bytes of a
# clean run; it repeats only what it must; it reports what failed and why; make -j bounds its jobs.
. "$(dirname "$0")/dist_prelude"
mkdir log
# As they are, but slow, and counted.
for program in wiki-extract json-extract bpe-tokenize merge-datasets; do
  cat >bin/$program <<END
#!/usr/bin/env bash
[ "\$1" != --version ] || exec $(command -v $program) --version
: >$WORK/log/$program.\$\$; ls $WORK/log | wc -l >>$WORK/running
sleep \${SLOW:-0.1}
$(command -v $program) "\$@"
status=\$?
rm $WORK/log/$program.\$\$
echo $program >>$WORK/runs
while [ -e $WORK/hold ]; do sleep 0.05; done
exit \$status
END
  chmod +x bin/$program
done
{ sed -n '1,/<\/siteinfo>/p' "$GOLDEN/tools/wiki.xml"
  for _ in $(seq 30); do sed '1,/<\/siteinfo>/d;/^<\/mediawiki>/d' "$GOLDEN/tools/wiki.xml"; done
  echo '</mediawiki>'; } >dump.xml
bzip2 -kc dump.xml >packed.xml.bz2
head -n 50 "$GOLDEN/tools/corpus.jsonl" >lines.jsonl && gzip -k lines.jsonl
settings+=(WIKI_FLAGS="-ns 0,10" SHARDS_PER_FILE=3)
inputs=(INPUT="dump.xml packed.xml.bz2 lines.jsonl lines.jsonl.gz")
dist() { make -s -j3 -f "$dist" "${settings[@]}" "${inputs[@]}" "$@" 2>>errors; }
kill_all() { # make's group, and the groups of its jobs
  kill -9 -- -$1
  for job in $(pgrep -f "$WORK/bin" || :); do kill -9 -- "-$job" || kill -9 "$job"; done
}

dist WORK=clean dataset >/dev/null && digest clean >clean.digest && sort runs | uniq -c && rm runs
awk '$1 > most { most = $1 } END { print "at once: " most }' running
touch mark && dist WORK=clean dataset >/dev/null &&
  find clean -name '*.idx' -newer mark -o -name '*.jsonl' -newer mark

for round in 1 2 3 4 5 6; do # make alone, make as a user ends it, make with all of its jobs
  setsid make -s -j3 -f "$dist" "${settings[@]}" "${inputs[@]}" WORK=work dataset >/dev/null 2>&1 &
  group=$!
  sleep 0.$((RANDOM % 7))$((RANDOM % 10))
  case $((round % 3)) in
    0) kill -9 $group ;;
    1) kill -TERM $group ;;
    2) kill_all $group ;;
  esac
  wait $group
done 2>/dev/null
dist WORK=work dataset >/dev/null && digest work | diff - clean.digest &&
  echo "killed and run again: the same bytes"
# Of a job that outlived make, its last act.
for _ in $(seq 200); do pgrep -f "$WORK/bin" >/dev/null || break; sleep 0.05; done
find work -name '*.part' -o -name '*.tmp' -o -name '*.running' -o -name '*.failed'

rm -f runs; settings[2]=TOKENIZE_FLAGS="--no-pad-vocab-size --empty-documents skip"
dist WORK=work dataset >/dev/null && echo "another flag of the tokenizer:" &&
  sort runs | uniq -c && rm runs
settings[2]=TOKENIZE_FLAGS=--no-pad-vocab-size; touch -d 2001-01-01 lines.jsonl
dist WORK=work dataset >/dev/null && echo "another time of one input:" &&
  sort runs | uniq -c && rm runs

echo '{"text": 7}' >>lines.jsonl; rm errors
run dist WORK=work dataset && status_of work | grep -c ' done '
status_of work | awk '$2 != "done" { $3 = ""; print }'
sed -i '$d' lines.jsonl
run dist WORK=work dataset | sed 's/-[0-9a-f]\{12\}/-HASH/'
SLOW=9 setsid make -s -f "$dist" "${settings[@]}" INPUT=dump.xml WORK=stopped dataset \
  >/dev/null 2>&1 &
for _ in $(seq 100); do
  [ -z "$(find stopped -name '*.running' -size +0 2>/dev/null)" ] || break
  sleep 0.05
done
status_of stopped | awk 'NR == 2 { print $1, $2 }'
{ kill_all $!; wait $!; } 2>/dev/null
status_of stopped | awk 'NR == 2 { print $1, $2 }'

touch hold # the index has its name, and its job still lives
setsid make -s -f "$dist" "${settings[@]}" INPUT=lines.jsonl WORK=held SHARDS_PER_FILE=1 \
  tokenize >/dev/null 2>&1 &
for _ in $(seq 200); do [ -z "$(find held -name '*.idx' 2>/dev/null)" ] || break; sleep 0.05; done
{ kill_all $!; wait $!; } 2>/dev/null
rm hold
find held -name '*.running' | wc -l
dist INPUT=lines.jsonl WORK=held SHARDS_PER_FILE=1 tokenize | wc -l
find held -name '*.running'

rm errors
run dist WORK=w INPUT=
run dist WORK=w INPUT=none.xml dataset
run dist WORK=w INPUT=dump.xml SHARDS_PER_FILE=x dataset
run dist WORK=w INPUT=dump.xml LAUNCH=ship dataset
sed 's/.*\*\*\* //' errors
