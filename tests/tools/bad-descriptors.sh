# Standard descriptors that are closed: no file that is opened takes their place, so messages never
# go into data; reading or writing them is an error.
. "$(dirname "$0")/prelude"
for i in 1 2 3; do printf '{"text":"document %d"}\nno json\n' $i; done >in.jsonl
json-extract -q --on-error skip -o in.want in.jsonl
bpe-tokenize -q --on-error skip $VOCAB -o in.want --input in.jsonl
for close in '<&-' '>&-' '2>&-' '<&- >&- 2>&-'; do
  eval "json-extract -w 1 --on-error skip -o out in.jsonl $close" 2>/dev/null && cmp out in.want
  eval "bpe-tokenize -w 1 --on-error skip $VOCAB -o out --input in.jsonl $close" 2>/dev/null &&
    cmp out_text_document.bin in.want_text_document.bin &&
    cmp out_text_document.idx in.want_text_document.idx && echo "$close same"
  rm -f out*
done
# An output that is closed is an error, whether there is text for it or not.
: >in.empty
for in in in.jsonl in.empty; do
  json-extract -q --on-error skip -o /dev/stderr $in 2>&-
  echo "exit $?"
  json-extract -q --on-error skip -o /dev/fd/2 $in 2>&- <&-
  echo "exit $?"
  run json-extract -q --on-error skip -o /dev/fd/0 $in <&- 2>&1
  run json-extract -q --on-error skip -o /dev/fd/0 $in <in.jsonl 2>&1
done
run near-dedup -q --on-error skip -o /dev/fd/0 in.want <&- 2>&1
report -o /dev/stderr in.want 2>&-
echo "exit $?"
run json-extract -q -o /dev/stderr in.want 2>&1
run json-extract <&-
run json-extract <.
# What is closed is no empty input, whatever leads to it.
{
  for path in /dev/stdin /dev/fd/0 /proc/self/fd/0 /proc/thread-self/fd/0; do
    run json-extract -q $path <&-
  done
  run bpe-tokenize -q $VOCAB --count /dev/stdin <&-
  run bpe-train -q --vocab-size 260 -o v /dev/stdin <&-
  run wiki-extract -q -o - /dev/stdin <&-
  json-extract -q -o out /dev/stdin <&- 2>&-
  echo "exit $?"
  run json-extract -q --on-error skip -o /proc/thread-self/fd/2 in.jsonl
  run json-extract -q --on-error skip -o /proc/thread-self/fd/1 in.jsonl 2>&-
  json-extract -q --on-error skip -o /proc/thread-self/fd/2 in.jsonl 2>&-
  echo "exit $?"
} 2>&1
json-extract --on-error skip -q in.jsonl >&-
echo "exit $?"
inspect-dataset in.want_text_document >&-
echo "exit $?"
left
