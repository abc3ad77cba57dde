#!/bin/sh
# make_man_page.sh PAGE.N.md [PROGRAM]: the man page in troff on stdout. A line "<!-- options -->" in the
# page is replaced by what PROGRAM --help-markdown says of its flags, so that page and parser cannot differ.
set -eu
page=$1 program=${2:-}
name=$(basename "$page" .md)
{
  while IFS= read -r line; do
    if [ "$line" = '<!-- options -->' ] && [ -n "$program" ]; then "$program" --help-markdown; else printf '%s\n' "$line"; fi
  done <"$page"
} | lowdown -s -Tman --out-no-smarty -M title="$(printf %s "${name%.*}" | tr a-z A-Z)" -M section="${name##*.}" -M source=gristmill -
