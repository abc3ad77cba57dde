# The examples of the man pages print what the pages say: blocks marked `console`, where a line with
# "$ " is a command and the lines below it are its output, errors among it. Each page has a folder
# with a small vocabulary to itself.
set -u
pages=$GOLDEN/../../docs/man
for page in "$pages"/*.1.md; do
  name=$(basename "$page" .1.md)
  grep -q '^```console' "$page" || continue
  command -v "$name" >/dev/null || continue  # not built
  mkdir "$name"
  cp "$GOLDEN/tools/vocab.json" "$GOLDEN/tools/merges.txt" "$name"
  [ "$name" != wiki-extract ] || cp "$GOLDEN/tools/wiki.xml" "$name"
  [ "$name" != parquet-extract ] || cp "$GOLDEN/columns/nested.parquet" "$name/rows.parquet"
  sed -n '/^```console/,/^```$/p' "$page" | grep -v '^```' >expected
  : >actual
  while IFS= read -r line; do
    case $line in
      '$ '*)
        printf '%s\n' "$line" >>actual
        (cd "$name" && LC_ALL=C.UTF-8 bash -c "${line#??}") >>actual 2>&1
        ;;
    esac
  done <expected
  diff -u expected actual >&2
done
