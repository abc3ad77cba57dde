# Standard output, and other files that are open: an input is never written to, nothing that is
# written elsewhere takes such a file's place, and what is in it stays.
. "$(dirname "$0")/prelude"
printf '{"text":"one"}\n{"text":"two"}\n' >in.jsonl
unchanged() { cmp in.jsonl "$1" && echo unchanged; }
appends() { # FILE COMMAND...
  "${@:2}" >>"$1"
  echo "exit $?"
}
for tool in json-extract near-dedup; do
  for output in - /dev/stdout; do
    cp in.jsonl in.own
    appends in.own "$tool" -q -o "$output" in.own
    unchanged in.own
  done
done
appends in.own json-extract -q <in.own
unchanged in.own
echo '<mediawiki></mediawiki>' >in.xml
cp in.xml in.same
appends in.xml wiki-extract -q -o /dev/stdout in.xml
cmp in.xml in.same && echo unchanged
# Devices are not what is meant.
run json-extract -q -o /dev/null /dev/null
# A list or a quarantine beside standard output.
appends in.list near-dedup -q -f -d in.list in.jsonl
appends in.list json-extract -q -f --on-error quarantine --quarantine in.list in.jsonl
appends in.list bpe-tokenize -q -f --count $VOCAB --on-error quarantine --quarantine in.list \
  in.jsonl
# Or beside another file that is open, under whatever name.
ln -s in.list in.link
for output in /dev/fd/3 /proc/self/fd/3; do
  run near-dedup -q -f -d in.list -o $output in.jsonl 3>>in.list
  for quarantine in in.list ./in.link; do
    run json-extract -q -f --on-error quarantine --quarantine $quarantine -o $output in.jsonl \
      3>>in.list
  done
done
run json-extract -q -f --on-error quarantine --quarantine in.list -o /dev/stderr in.jsonl \
  2>>in.list
cat in.list
rm in.list in.link
run json-extract -q -f --on-error quarantine --quarantine in.list -o /dev/fd/3 in.jsonl 3>in.other
cat in.other
# An open file is written from where it stands, and never replaced.
{
  echo header >&3
  run json-extract -q -f -o /dev/fd/3 in.jsonl
  near-dedup -q -f -o /dev/fd/3 in.jsonl
  echo footer >&3
} 3>in.log
cat in.log
echo earlier >in.log
refused=(-q -f --on-error quarantine --quarantine)
run bpe-train "${refused[@]}" /dev/fd/3 -o in.vocabulary in.jsonl 3>>in.log
run json-extract "${refused[@]}" /dev/stderr -o out.jsonl in.jsonl 2>>in.log
cat in.log
run json-extract -q -o /dev/fd/9 in.jsonl
run json-extract -q --on-error quarantine --quarantine - -o out.jsonl in.jsonl
# A pipe is not opened for inputs that are not there: its reader would wait.
mkfifo in.pipe
run timeout 20 json-extract -q -o in.pipe in.missing
# A quarantine that must not be replaced is refused before any work, and with --force one of an
# earlier run goes: its records are not in this run's input.
printf 'bad\n{"text":"one"}\n' >in.bad
run json-extract -q --on-error quarantine -o out.jsonl in.bad
rm out.jsonl
run json-extract -q --on-error quarantine -o out.jsonl in.jsonl
cat out.jsonl.quarantine
run json-extract -q -f --on-error quarantine -o out.jsonl in.jsonl
run bpe-tokenize -q --on-error quarantine --output-prefix out --input in.bad $VOCAB
run bpe-tokenize -q --on-error quarantine --output-prefix out --input in.bad $VOCAB
# One that --quarantine names may be of another part of a corpus: it stays.
good=(json-extract -f --on-error quarantine)
run "${good[@]}" -q --quarantine in.named -o in.out1 in.bad
run "${good[@]}" --quarantine in.named -o in.out2 in.jsonl
cat in.named
# A link stays, and its records go.
echo earlier >in.target
ln -s in.target in.out3.quarantine
run "${good[@]}" -q -o in.out3 in.jsonl
run "${good[@]}" -q -o in.out3 in.jsonl
readlink in.out3.quarantine
cat in.target
# Nor does it go where it has become the output.
echo old >in.out4
ln -s in.out4 in.out4.quarantine
run "${good[@]}" -q -o in.out4 in.jsonl
cat in.out4
# Another run's, beside what a killed run left, is refused.
run json-extract -q --on-error quarantine -o in.out5 in.bad
rm in.out5
: >.in.out5.99999.tmp
run json-extract -q --on-error quarantine -o in.out5 in.jsonl
ls in.out5 2>/dev/null
cat in.out5.quarantine
run bpe-train -q --vocab-size 260 --on-error quarantine -o in.out6 in.bad
rm in.out6/tokenizer.json in.out6/vocab.json in.out6/merges.txt
: >in.out6/.tokenizer.json.99999.tmp
run bpe-train -q --vocab-size 260 --on-error quarantine -o in.out6 in.jsonl
ls in.out6
# What is replaced keeps its permissions.
chmod 600 out.jsonl
run json-extract -q -f -o out.jsonl in.jsonl
stat -c %a out.jsonl
rm -rf in.vocabulary
left
