# Where the system refuses threads, as a container's limit does, fewer do the work. And no library
# is taken from the folder in which a program is started.
. "$(dirname "$0")/prelude"
few() { # LIMIT COMMAND...: as another user, whose threads are counted alone
  local limit=$1; shift
  prlimit --nproc="$limit" setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
}
mkdir x && cd x || exit 1
few 2 json-extract --version >/dev/null 2>&1 || { echo "no limit for another user here"; exit 77; }
echo "no library" | tee libm.so.6 libc.so.6 libstdc++.so.6 libgcc_s.so.1 libicuuc.so.72 >/dev/null
for program in json-extract wiki-extract near-dedup bpe-train bpe-tokenize merge-datasets \
  shuffle-index inspect-dataset report trainer plan-training generate megatron-to-hf \
  hf-to-megatron; do
  "$program" --version >/dev/null || echo "$program took a library from here"
done
if command -v parquet-extract >/dev/null; then parquet-extract --version >/dev/null; fi
cd .. && chmod 777 .
seq -f '{"text":"document %g of some words that are not those of another one"}' 20000 >in.jsonl
{
  echo '<mediawiki><siteinfo><namespaces><namespace key="0" /></namespaces></siteinfo>'
  for i in $(seq 300); do
    echo "<page><title>p$i</title><ns>0</ns><id>$i</id><revision><text>Words of $i.</text>"
    echo "</revision></page>"
  done
  echo '</mediawiki>'
} >in.xml
bpe-tokenize -q -o all $VOCAB in.jsonl
for limit in 2 3 4 6; do
  few $limit json-extract -q -w 8 in.jsonl | cmp - in.jsonl || echo "json-extract at $limit"
  few $limit bpe-tokenize -q -w 8 -f -o few $VOCAB in.jsonl && cmp few_text_document.bin \
    all_text_document.bin || echo "bpe-tokenize at $limit"
  few $limit near-dedup -q -w 8 -f -o near.jsonl in.jsonl || echo "near-dedup at $limit"
  few $limit wiki-extract -q --processes 8 -o - in.xml | grep -c '"Words'
done
rm -f few* near*
