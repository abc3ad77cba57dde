# Man pages as man(1) shows them, narrow and wide: no flag, and no word, is broken at a hyphen. And
# what has no default says none.
. "$(dirname "$0")/prelude"
command -v nroff >/dev/null || { echo "no nroff"; exit 77; }
for page in "$GOLDEN"/../../docs/man/*.1.md; do
  name=$(basename "$page" .1.md)
  command -v "$name" >/dev/null || continue
  "$name" --help | grep -nE 'Default: \.( |$)' | sed "s/^/$name: no default: /"
  for width in 50 78 100; do
    "$name" "--help-man=$page" | nroff -man -Tutf8 -rLL=${width}n 2>/dev/null |
      sed 's/\x1b\[[0-9;]*m//g' >in.page
    [ -s in.page ] || echo "$name: nothing at $width columns"
    grep -nE '[[:alnum:]][-‐]$' in.page | sed "s/^/$name at $width: /"
  done
done
