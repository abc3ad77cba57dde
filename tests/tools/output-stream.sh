# Outputs that are no files of their own: standard output by its other names, a named pipe, a
# process substitution, a device; as they are, whole, and nothing is left behind.
. "$(dirname "$0")/prelude"
printf '{"text":"one"}\n{"text":"two"}\n' >in.jsonl
run json-extract -q -o /dev/stdout in.jsonl
run json-extract -q -o /dev/fd/1 in.jsonl >in.redirected
cat in.redirected
run json-extract -q -o /proc/self/fd/1 in.jsonl | cat
run json-extract -q -o /dev/null in.jsonl
mkfifo in.pipe
timeout 20 cat in.pipe >in.from-pipe &
run json-extract -q --compress zstd -o in.pipe in.jsonl
wait
zstd -dcq in.from-pipe | cmp - in.jsonl && echo same
json-extract -q -o >(cat >in.substituted; echo done >in.done) in.jsonl
await in.done
cmp in.substituted in.jsonl && echo same
run near-dedup -q -o /dev/stdout in.jsonl
near-dedup -q -o /dev/null in.jsonl
[ ! -x "$(dirname "$(command -v json-extract)")/parquet-extract" ] ||
  parquet-extract -q -c text -o /dev/stdout "$GOLDEN/columns/zstd.parquet" |
    cmp - "$GOLDEN/columns/expected.00"
mkdir run
echo '{"iteration": 1, "lm_loss": 2}' >run/metrics.jsonl
report -o /dev/stdout run | grep -c '<html'
# What a device does not keep has no name that a quarantine could be put beside. A full one is an
# error, and a link to one stays.
echo 'bad' >in.bad
run json-extract --on-error quarantine -o /dev/null in.bad 2>&1
run json-extract -q -o /dev/full in.jsonl 2>&1
ln -s /dev/null in.link
run json-extract -q -o in.link in.jsonl
readlink in.link
rm -r run
left
