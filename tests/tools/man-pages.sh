# Man pages as man(1) shows them, narrow and wide: no flag, and no word, is broken at a hyphen; no
# line is spread over the width; and quotes are those of a shell. And what has no default says none.
. "$(dirname "$0")/prelude"
command -v nroff >/dev/null || { echo "no nroff"; exit 77; }
for page in "$GOLDEN"/../../docs/man/*.1.md; do
  name=$(basename "$page" .1.md)
  command -v "$name" >/dev/null || continue
  "$name" --help | grep -nE 'Default: \.( |$)' | sed "s/^/$name: no default: /"
  for width in 40 60 80 100; do
    # groff 1.23 makes plain quotes typographic, where the distribution does not undo it; so does
    # this. Bold and underlined characters are printed twice, or between escapes.
    "$name" "--help-man=$page" | sed "1a .char ' \\\[cq]\n.char \` \\\[oq]" |
      nroff -man -Tutf8 -rLL=${width}n 2>in.warnings |
      sed 's/.\x08//g; s/\x1b\[[0-9;]*m//g' >in.page
    [ -s in.page ] || echo "$name: nothing at $width columns"
    grep -nE '[[:alnum:]][-‐−]$' in.page | sed "s/^/$name at $width: /"
    grep -n '[’‘ˆ˜]' in.page | sed "s/^/$name at $width: /"
    grep 'cannot adjust' in.warnings | sed "s/^/$name at $width: /"
  done
done
