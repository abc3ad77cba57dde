# Near duplicates: who stays, who was dropped for whom, the same for any number of workers, any
# memory and any cut into files; what cannot be read twice is refused.
. "$(dirname "$0")/prelude"
long="the quick brown fox jumps over the lazy dog while seven wizards brew strong potions"
long="$long in a dark tower near the old river bank"
cat >in.1 <<EOF
{"id":0,"text":"$long and nobody has ever seen them leave before the first light of the morning"}
{"id":1,"text":"short text"}
{"id":2,"text":"something else altogether, of which no other document in these files \
knows anything at all"}
EOF
cat >in.2 <<EOF
{"id":3,"text":"${long^^}, AND NOBODY has ever seen them leave before the first light \
of the morning!"}
{"id":4,"text":"short text"}

{"id":5,"text":"$long and nobody has ever seen them leave before the first light of the mornings"}
EOF
near-dedup in.1 in.2 -d dropped
cat dropped
near-dedup -q -f -d dropped in.2 in.1 | grep -o '"id":.'
json-extract -q -0 in.1 in.2 >in.nul
near-dedup -q --input-format nul in.nul | tr '\0' '\n' | cut -c 1-12

corpus=$GOLDEN/tools/corpus.jsonl
awk '{ print; if (NR % 3 == 0) print tolower($0) }' "$corpus" | grep text >in.corpus
near-dedup -w 1 -o one -d dropped.1 --on-error skip in.corpus 2>note.1
near-dedup -w 5 -o five -d dropped.5 --memory 1M --on-error skip in.corpus 2>note.5
cmp one five && cmp dropped.1 dropped.5 && cmp note.1 note.5 && echo same
head -c 3000 in.corpus | head -n -1 >in.front
tail -c +$(($(wc -c <in.front) + 1)) in.corpus >in.back
zstd -q in.back -o in.packed
near-dedup -q --on-error skip in.front in.packed 2>&1 | grep -v '^near-dedup' | cmp - one &&
  echo "cut into files"
rm one five dropped* note.*

run near-dedup - <in.1
run near-dedup <in.1
mkfifo in.pipe
run near-dedup in.pipe
run near-dedup --input-format array in.1
run near-dedup --range 1/2 in.1
printf '{"text":3}\n' >in.bad
run near-dedup in.1 in.bad -o out
run near-dedup -q in.1 in.bad -o out --on-error skip && wc -l <out
run near-dedup -q in.1 -o out

# A name is written as JSON writes it: a reader gets it back as it is.
odd=$'in.line\nend "quoted" back\\slash'
cp in.1 "$odd"
near-dedup -q -o kept -d list in.1 "$odd"
cat list
rm kept list
run near-dedup -q in.1 -o both -d both
run near-dedup -q in.1 -o both -d ./both
run near-dedup -q in.1 -d -
run near-dedup
near-dedup --help | grep -c 'standard input\|array'
# A pipe is opened when nothing else can be refused: its reader would see an empty success.
mkfifo in.out
echo old >in.old
timeout 20 cat in.out >in.read &
run timeout 10 near-dedup -q in.1 -o in.out -d in.old
run timeout 10 near-dedup -q in.1 -o in.out -d none/list
(ulimit -n 64 && run timeout 10 near-dedup -q -w 2 --bands 1000 in.1 -o in.out)
kill -0 $! && echo "the reader waits"
kill $!
# Through a link everything is written beside what it leads to.
mkdir in.there in.here
touch in.there/kept
[ "$(id -u)" != 0 ] || mount -t tmpfs none in.here 2>/dev/null
ln -s "$PWD/in.there/kept" in.here/kept
chmod a-w in.here
mount -o remount,ro in.here 2>/dev/null
run near-dedup -q -f in.1 -o in.here/kept
umount in.here 2>/dev/null
cmp in.there/kept in.1 && echo same
(ulimit -n 64 && run near-dedup -q -w 2 --bands 1000 in.1 -o many)
(ulimit -Sn 64 && run near-dedup -q -w 2 --bands 100 in.1 -o many)
cp in.1 in.first && ln in.first in.same
run near-dedup -q -f in.1 in.first -o in.same
run near-dedup -q -f in.first -o kept -d ./in.first
cmp in.1 in.first && echo "the input stays"
left
