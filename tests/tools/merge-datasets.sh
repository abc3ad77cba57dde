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
