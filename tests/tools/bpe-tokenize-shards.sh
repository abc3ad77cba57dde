# --count counts what would be written; --shard-tokens cuts between documents, and the
# shards together are the whole.
. "$(dirname "$0")/prelude"
cat >in.jsonl <<END
{"text": "the cat sat on the mat and the dog", "title": "x"}
{"text": "", "title": "a title of several words"}
{"text": ["one two", "three four five"], "title": ["a", "b"]}
{"text": "a very long document that has more tokens than a shard may have, \
whatever comes before it or behind it", "title": "y"}
{"text": "end", "title": ""}
END
echo "- count"
bpe-tokenize -q $VOCAB --count --append-eod --json-keys text title -- in.jsonl
bpe-tokenize -q $VOCAB -o whole --append-eod --json-keys text title -- in.jsonl
for key in text title; do
  inspect-dataset stats whole_${key}_document | grep -iE '^ *(documents|tokens)'
done
bpe-tokenize $VOCAB --count in.jsonl 2>&1
bpe-tokenize -q $VOCAB in.jsonl 2>&1
bpe-tokenize -q $VOCAB --count --on-error quarantine in.jsonl 2>&1
left | tr ' ' '\n' | grep -v whole
echo "- shards"
bpe-tokenize $VOCAB -v -o part --append-eod --json-keys text title --shard-tokens 24 \
  -- in.jsonl 2>&1 | grep -E 'uint16|in ='
for key in text title; do
  merge-datasets -q --output-prefix merged_${key} \
    $(ls part_*_${key}_document.idx | sed 's/\.idx$//')
  cmp whole_${key}_document.bin merged_${key}.bin &&
    cmp whole_${key}_document.idx merged_${key}.idx && echo "$key: the whole"
done
for i in part_*_document.idx; do
  inspect-dataset verify -q "${i%.idx}" >/dev/null || echo "$i differs"
done
grep -ho '"first_line": *[0-9]*' part_0000*_text_document.manifest | tr '\n' ' '; echo
bpe-tokenize $VOCAB -v -o exact --append-eod --shard-tokens 36 in.jsonl 2>&1 | grep uint16
echo "- as often as asked"
bpe-tokenize -q $VOCAB -o part --shard-tokens 1000 in.jsonl 2>&1
rm part_00000_text_document.*
bpe-tokenize -q $VOCAB -o part --shard-tokens 1000 in.jsonl 2>&1
bpe-tokenize -q $VOCAB -o part --force --shard-tokens 50 in.jsonl && ls part_*_text_document.idx
bpe-tokenize -q $VOCAB -o part --force --shard-tokens 1000 in.jsonl && ls part_*_text_document.*
echo "- with shards or without, not both"
bpe-tokenize -q $VOCAB -o form --shard-tokens 50 in.jsonl
bpe-tokenize -q $VOCAB -o form --json-keys title -- in.jsonl # another key's
bpe-tokenize -q $VOCAB -o form in.jsonl 2>&1
bpe-tokenize -q $VOCAB -o form -f in.jsonl 2>&1
ls form_*.idx
rm form_0*
bpe-tokenize -q $VOCAB -o form -f in.jsonl
bpe-tokenize -q $VOCAB -o form --shard-tokens 50 in.jsonl 2>&1
bpe-tokenize -q $VOCAB -o form -f --shard-tokens 50 in.jsonl 2>&1
ls form_*.idx
echo "- too many, and nothing is left"
seq 1100 | sed 's/.*/{"text": "word &"}/' >many.jsonl
bpe-tokenize -q $VOCAB -o many --shard-tokens 1 many.jsonl 2>&1
ls many_* .many* 2>/dev/null
(ulimit -n 64; bpe-tokenize -q $VOCAB -w 1 -o few --shard-tokens 1 many.jsonl 2>&1) |
  sed -E 's/tokenize: (\.|few_[^:]*):/tokenize: NAME:/'
ls few_* .few* 2>/dev/null
head -n 120 many.jsonl | bpe-tokenize -q $VOCAB -o most --shard-tokens 1 && ls most_*.idx | wc -l
echo "- whatever the workers, over chunks and long records"
{
  seq 40000 | sed 's/.*/{"text": "some words of document & and more"}/'
  printf '{"text": "'; seq -s ' ' 900000 | tr -d '\n'; echo '"}'
  seq 100 | sed 's/.*/{"text": "behind &"}/'
} >large.jsonl
for w in 1 5; do
  bpe-tokenize -q $VOCAB -w $w -o large$w --shard-tokens 300000 large.jsonl
  cat large${w}_*.bin large${w}_*.idx | md5sum
done
bpe-tokenize -q $VOCAB -o large large.jsonl
cat large1_*.bin | cmp - large_text_document.bin && ls large1_*.bin | wc -l
