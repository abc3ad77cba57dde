# merge-datasets: order, checks, refusals, many shards with few descriptors, and
# nothing left behind.
set -u
mkdir in
for part in 1 2 10; do make-dataset in/part_${part} 50 40 $part; done
status() { "$@" 2>err; echo "status $?"; sed 's/^/  /' err; }

echo "== name order puts part_10 between part_1 and part_2"
merge-datasets -q --input in --output-prefix name
merge-datasets -q in/part_1 in/part_10.idx in/part_2.bin --output-prefix given
cmp name.bin given.bin && cmp name.idx given.idx && echo equal
merge-datasets -q --input in --output-prefix natural --order natural
merge-datasets -q --input in/part_1 in/part_2 in/part_10 --output-prefix given2
cmp natural.bin given2.bin && cmp natural.idx given2.idx && echo equal
cmp -s name.bin natural.bin || echo different

echo "== all files of a dataset, as a pattern gives them, are one; the same word twice is two"
listed() { merge-datasets -q --dry-run --output-prefix x "$@" | cut -f1 | xargs; }
listed in/part_1.* in/part_10.*
listed in/part_2.idx in/part_1.bin in/part_2 in/part_1.idx
listed in/part_1 in/part_2 in/part_1
listed in/part_1.* in/part_2.* in/part_1.*
listed in/part_1.* in

echo "== merging is the same as one run over everything"
inspect-dataset verify name
inspect-dataset where name --document 60
merge-datasets -q name given --output-prefix twice
inspect-dataset twice
inspect-dataset where twice --document 160

echo "== --verify makes the checksums that inputs do not have"
for part in 1 2; do make-dataset bare_$part 50 40 $part; rm bare_$part.manifest; done
merge-datasets -q bare_1 bare_2 --output-prefix unverified
inspect-dataset verify unverified
merge-datasets -q bare_1 in/part_10 bare_2 --output-prefix verified --verify
inspect-dataset verify verified
rm bare_* unverified.* verified.*

echo "== the output may lie in the input folder, and is no input the second time"
merge-datasets -q --input in --output-prefix in/all
status merge-datasets -q --input in --output-prefix in/all
merge-datasets -q --input in --output-prefix in/all --force
cmp in/all.idx name.idx && echo equal
rm in/all.*

echo "== dry run"
status merge-datasets --input in --output-prefix x --dry-run
ls x.* 2>/dev/null

echo "== strays are named, incomplete pairs refused"
echo hello >in/README
cp in/part_1.bin in/lost.bin
status merge-datasets --input in --output-prefix x
status merge-datasets --input in --output-prefix x --skip-incomplete
cmp x.bin name.bin && echo equal
rm in/lost.bin in/README x.*

echo "== a link that leads nowhere is a part that is missing"
mkdir links
for part in 1 2; do for end in bin idx; do ln -s ../in/part_$part.$end links; done; done
ln -s gone links/part_3.bin; ln -s gone links/part_3.idx; ln -s gone links/notes
status merge-datasets --input links --output-prefix x
status merge-datasets --input links --output-prefix x --skip-incomplete
rm x.* links/part_3.bin; cp in/part_1.bin links/part_3.bin
status merge-datasets -q --input links --output-prefix x
rm links/part_3.*
status merge-datasets -q --input links --output-prefix x
merge-datasets -q in/part_1 in/part_2 --output-prefix y
cmp x.bin y.bin && echo equal
rm -r x.* y.* links

echo "== a dataset whose index files lie in a folder of its name"
shuffle-index -q --data-path in/part_2 --split 1 --seq-length 8 --samples 9,0,0 |
  cut -d/ -f1-4 | uniq
merge-datasets -q in/part_2 --output-prefix x
cmp x.bin in/part_2.bin && echo equal
rm -r x.* in/part_2/
mkdir both; cp in/part_1.bin in/part_1.idx both
make-dataset both 5 9 1
status merge-datasets both --output-prefix x
status merge-datasets both/ --output-prefix x
status merge-datasets both.idx --output-prefix x
status merge-datasets --force both.idx --output-prefix x
merge-datasets -q --force --input both --output-prefix both
cmp both.bin in/part_1.bin && echo "the folder, for its own output"
rm -r both both.* x.*

echo "== a prefix without a name, a prefix that looks like a file's name"
mkdir d
status merge-datasets in/part_1 --output-prefix d/
ls -A d
make-dataset a.idx 5 9 1
status merge-datasets -q a.idx.bin --output-prefix x
rm -r d a.* x.*

echo "== a manifest that is not ours, a .bin whose .idx was lost"
echo mine >x.manifest
status merge-datasets in/part_1 in/part_2 --output-prefix x
status merge-datasets in/part_1 in/part_2 --output-prefix x --no-manifest
cat x.manifest; rm x.manifest
ln -s in/part_1.manifest x.manifest
status merge-datasets in/part_2 --output-prefix x
status merge-datasets in/part_2 --output-prefix x --no-manifest
status merge-datasets in/part_1 in/part_2 --output-prefix x --force
inspect-dataset verify in/part_1
rm x.manifest
merge-datasets -q in/part_1 in/part_2 --output-prefix x
rm x.idx
status merge-datasets in/part_2 --output-prefix x
rm x.*

echo "== a dry run refuses what the merge refuses"
dry() {
  merge-datasets "$@" --dry-run >dry 2>&1; echo "status $?" >>dry
  merge-datasets "$@" >real 2>&1; echo "status $?" >>real
  diff dry real && cat dry
}
make-dataset other 5 9 1 tokenizer=another
make-dataset stale 5 9 1; make-dataset kept 6 9 1; mv kept.bin stale.bin; mv kept.idx stale.idx
make-dataset bad 50 40 4
printf x | dd of=bad.bin bs=1 seek=100 conv=notrunc 2>/dev/null
dry in/part_1 other --output-prefix x
dry in/part_1 stale --output-prefix x
dry in/part_1 bad --output-prefix x --verify
dry in/part_1 in/part_2 --output-prefix in/part_1 --force
dry in/part_1 --output-prefix none/x
dry in/part_1 --output-prefix name
echo mine >x.manifest
dry in/part_1 --output-prefix x
rm x.manifest; mkdir x.bin
dry in/part_1 --output-prefix x --force
rmdir x.bin; ln -s gone x.idx
dry in/part_1 --output-prefix x --force
status merge-datasets in/part_1 bad --output-prefix fine --verify --dry-run
status merge-datasets in/part_1 --output-prefix fine --verify --dry-run
rm x.idx other.* stale.* bad.* kept.* dry real
ls x* fine* .x* .fine* 2>/dev/null

echo "== dtypes, tokenizers, damage"
make-dataset wide 5 9 1 int32
status merge-datasets in/part_1 wide --output-prefix x
make-dataset other 5 9 1 tokenizer=another
status merge-datasets in/part_1 other --output-prefix x
status merge-datasets -q in/part_1 other --output-prefix x --mixed-tokenizers
rm x.*
make-dataset eod 5 9 1 uncounted-eod
status merge-datasets in/part_1 eod --output-prefix x
make-dataset bad 50 40 4
printf x | dd of=bad.bin bs=1 seek=100 conv=notrunc 2>/dev/null
status merge-datasets -q in/part_1 bad --output-prefix x --verify
status merge-datasets in/part_1 none --output-prefix x
mkdir empty
status merge-datasets empty --output-prefix x
status merge-datasets in/part_1 --output-prefix in/part_1
status merge-datasets in/part_1 --output-prefix none/x
status merge-datasets --output-prefix x
ls x.* .x.* none 2>/dev/null

echo "== 300 shards with 24 descriptors"
mkdir many
for i in $(seq 300); do echo many/s$i; done |
  while read -r p; do make-dataset $p 3 5 ${p#many/s}; done
(ulimit -n 24; merge-datasets -q --input many --order natural --output-prefix merged)
inspect-dataset verify merged
inspect-dataset where merged --document 899

echo "== killed at some moment: whole or not there, and the same command again"
make-dataset large 300000 60 9
for delay in 0.005 0.02 0.05 0.1; do
  for signal in TERM KILL; do
    rm -f k.*
    merge-datasets -q large large large large --output-prefix k 2>/dev/null &
    sleep $delay
    kill -$signal $! 2>/dev/null
    wait $! 2>/dev/null
    if [ -e k.idx ]; then inspect-dataset k >/dev/null || echo "torn"; rm -f k.*; fi
    [ $signal = TERM ] && ls .k.* 2>/dev/null
    merge-datasets -q large large large large --output-prefix k || echo "the same command failed"
    ls .k.* 2>/dev/null
  done
done
inspect-dataset verify k

echo "== a full disk"
(trap '' XFSZ; ulimit -f 4; status merge-datasets --input in in in in --output-prefix full) 2>&1 |
  cat
ls full.* .full.* 2>/dev/null
true
