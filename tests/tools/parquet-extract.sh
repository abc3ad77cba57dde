# Parquet and Arrow IPC files as pyarrow reads them (tests/reference/parquet_golden.py), whatever
# the workers; bad rows with file and row; files that are damaged, cut short, or of another kind.
. "$(dirname "$0")/prelude"
command -v parquet-extract >/dev/null ||
  { echo "parquet-extract is not built: no Apache Arrow"; exit 77; }
files=$GOLDEN/columns
while IFS=$'\t' read -r file flags expected; do
  for workers in 1 3; do
    parquet-extract -q -w $workers --memory 1M $flags "$files/$file" |
      cmp - "$files/$expected" || echo "differs: $file $flags"
  done
done <"$files/cases.tsv"
echo "$(wc -l <"$files/cases.tsv") cases"

parquet-extract -q -c text "$files"/zstd.parquet "$files"/stream.arrow "$files"/none.parquet \
  >in.several
cat "$files"/expected.00 "$files"/expected.00 "$files"/expected.00 | cmp - in.several &&
  echo "several files, in order"

cp "$files/bad.parquet" in.bad
for workers in 1 3; do
  run parquet-extract -w $workers -c text in.bad
  run parquet-extract -w $workers -c text --on-error skip in.bad
done
run parquet-extract -c list -c n --on-error skip in.bad
run parquet-extract -c text -0 --on-error skip --max-errors 1 -o out in.bad
run parquet-extract -c n in.bad
run parquet-extract -c list -c when in.bad
run parquet-extract -c txt in.bad
cp "$files"/layouts.* .
for column in view large inner ends; do
  run parquet-extract -c $column layouts.arrow
  run parquet-extract -c text -c $column layouts.arrow
done
run parquet-extract -c view layouts.parquet
run parquet-extract -q -c text layouts.arrow
rm layouts.*
# Where a writer found no value it named no type: such rows are bad, as all nulls are.
cp "$files"/nothing.parquet "$files"/twice.parquet .
run parquet-extract -c text -c named --on-error skip nothing.parquet
run parquet-extract -c list -c text --on-error skip nothing.parquet
run parquet-extract -c text -c pair twice.parquet
run parquet-extract -c text -c pair.k twice.parquet
rm nothing.parquet twice.parquet
run parquet-extract -c text.b in.bad
run parquet-extract -c meta.urk "$files/zstd.parquet" 2>&1 | grep -o 'no column.*'
mkdir in.folder
run parquet-extract -c text in.folder
run parquet-extract -c text -c text in.bad
run parquet-extract -c text -c n -0 in.bad
run parquet-extract in.bad
run parquet-extract
run parquet-extract -c text </dev/null

head -c 3000 "$files/zstd.parquet" >in.cut
run parquet-extract -c text in.cut 2>&1 | head -c 75 && echo
head -c -8 "$files/stream.arrow" >in.unfinished
run parquet-extract -q -o out -c text in.unfinished
# Of streams in one file, readers see only the first; zeros after it are room that was not used.
cat "$files/stream.arrow" "$files/stream.arrow" >in.two
run parquet-extract -q -o out -c text in.two 2>&1 | sed 's/: [0-9]* bytes/: N bytes/'
{ cat "$files/stream.arrow" && head -c 100 /dev/zero; } >in.padded
parquet-extract -q -c text in.padded | cmp - "$files/expected.00" && echo "zeros at the end"
# The same of Parquet, of which readers see only the last, in bytes of the first.
for first in zstd none nested empty; do
  cat "$files/$first.parquet" "$files/none.parquet" >in.two
  run parquet-extract -q -o out -c text in.two
done
cat "$files/none.parquet" "$files/empty.parquet" >in.two
run parquet-extract -q -o out -c text in.two
cat "$files"/none.parquet "$files"/none.parquet "$files"/none.parquet >in.two
run parquet-extract -q -o out -c text in.two
head -c 4000 "$files/stream.arrow" >in.torn
run parquet-extract -q -c text in.torn 2>&1 >in.some | head -c 75 && echo
# A page that says it has 1.9 GB.
run parquet-extract -q -c doc.body -c doc.n --on-error skip \
  "$(dirname "$GOLDEN")/fuzz/corpus/columns/huge-page" 2>&1 >in.some |
  grep -o 'cannot be read as Parquet: [^0-9]*'
printf '{"text":"a"}\n' >in.json
run parquet-extract -c text in.json
run parquet-extract -c text in.nothing
cp "$files/zstd.parquet" in.parquet && ln -s in.parquet in.link
run parquet-extract -q -f -c text -o in.link in.parquet
cmp "$files/zstd.parquet" in.parquet && echo "the input stays"
mkfifo in.pipe
run parquet-extract -c text in.pipe
echo kept >kept
run parquet-extract -c text -o kept "$files/empty.parquet"
run parquet-extract -f -c text -o kept "$files/empty.parquet"
left
