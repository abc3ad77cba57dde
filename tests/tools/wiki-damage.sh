# Damage at random places: a run ends by itself, either with every page accounted for or with one
# line that names place and reason, and never with incomplete output under a final name. Killed at
# random moments and run again, it gives the bytes of an undisturbed run.
. "$(dirname "$0")/prelude"
seed=${SEED:-7}
RANDOM=$seed
if [ -f "$SHARED/enwiki-sample.xml.bz2" ]; then
  bzcat "$SHARED/enwiki-sample.xml.bz2" |
    awk '/<page>/ { pages++ } pages <= 12 { print } END { print "</mediawiki>" }' >in.xml
else
  { sed -n '1,/<\/siteinfo>/p' "$GOLDEN/tools/wiki.xml"
    for _ in $(seq 300); do sed '1,/<\/siteinfo>/d;/^<\/mediawiki>/d' "$GOLDEN/tools/wiki.xml"; done
    echo '</mediawiki>'; } >in.xml
fi
wrong() { echo "seed $seed: $*"; cat messages | tail -n 3; }
check() { # STATUS FILE: what a run may end with
  if [ "$1" = 0 ]; then
    awk -v lines="$(wc -l <out)" '
      / pages? = / {
        gsub(",", ""); sum = $5 + $8 + $11 + $16 + $19; ok = $2 == sum && $5 == lines
      }
      END { exit !ok }' messages || wrong "$2: does not add up"
  elif [ "$1" = 1 ]; then
    tail -n 1 messages | grep -q "^wiki-extract: in.damaged: *.*byte [0-9]*" || wrong "$2: no place"
  else
    wrong "$2: status $1"
  fi
}
extract() {
  timeout 60 wiki-extract in.damaged --processes $((RANDOM % 3 + 1)) "$@" -o - >out 2>messages
}
damage() { # COUNT: changes that number of bytes of in.damaged
  local size=$(stat -c %s in.damaged) i
  for i in $(seq "$1"); do
    printf "\\x$(printf %02x $((RANDOM % 256)))" |
      dd of=in.damaged bs=1 seek=$((RANDOM * 32768 % size + RANDOM % 1000)) conv=notrunc status=none
  done
}
for round in $(seq 10); do
  cp in.xml in.damaged && damage $((1 << round))
  extract --on-error skip; check $? "bytes of XML, skipped"
  extract; check $? "bytes of XML"
  head -c $((RANDOM * 32768 % $(stat -c %s in.xml))) in.xml >in.damaged
  extract --on-error skip && wrong "cut XML passed"; check 1 "cut XML"
done
for pack in bzip2 xz zstd gzip; do
  $pack -c in.xml >in.whole
  size=$(stat -c %s in.whole)
  for round in $(seq 6); do
    cp in.whole in.damaged
    at=$((RANDOM * 32768 % size))
    byte=$(od -An -tu1 -j $at -N 1 in.damaged)
    printf "\\x$(printf %02x $((byte ^ 1 << RANDOM % 8)))" |
      dd of=in.damaged bs=1 seek=$at conv=notrunc status=none
    if extract --on-error skip; then # a bit without meaning, such as one of gzip's time
      wiki-extract -q in.xml -o - | cmp -s - out || wrong "$pack: bit of byte $at"
    elif grep -q 'not XML\|no <page>' messages; then :; else check 1 "$pack: bit of byte $at"; fi
    head -c $((RANDOM * 32768 % size)) in.whole >in.damaged
    extract && wrong "$pack: cut, passed"
  done
done
rm -f out messages
echo damaged
for _ in 1 2 3 4; do cat in.xml; done >in.body
{
  sed -n '1,/<\/siteinfo>/p' in.xml
  sed '/<mediawiki/,/<\/siteinfo>/d;/^<\/mediawiki>/d' in.body
  echo '</mediawiki>'
} >in.long.xml
wiki-extract -q in.long.xml -b 20K -o clean
for _ in $(seq 8); do
  wiki-extract -q in.long.xml -b 20K -o out --processes 2 2>>runs &
  sleep 0.0$((RANDOM % 10))
  { kill -9 $! && wait $!; } 2>/dev/null
  for file in $(cd out 2>/dev/null && find . -name 'wiki_*'); do cmp "out/$file" "clean/$file"; done
done
wiki-extract -q in.long.xml -b 20K -o out 2>>runs ||
  wiki-extract -q in.long.xml -b 20K -o out --force
grep -v 'not replaced without --force' runs  # of runs that were done before they could be killed
rm -f runs
diff -r out clean && rm -r out clean && echo "killed and run again: the same bytes"
left
