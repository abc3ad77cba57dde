#!/usr/bin/env bash
# wiki-extract beside WikiExtractor and lbzip2.
#
#   bench/wiki.sh compare [DUMP]   texts against WikiExtractor's, page by page
#   bench/wiki.sh time [DUMP]      seconds, medians of five, each tool in turn
#
# DUMP: a MediaWiki export; default ../shared/data/enwiki-sample.xml.bz2 (time: its pages repeated 20 times).
# Wants: python3 with the package wikiextractor (PYTHON=...), lbzip2. BIN: where the programs are.
set -euo pipefail
cd "$(dirname "$0")/.."
BIN=${BIN:-build/release/bin} PYTHON=${PYTHON:-python3}
DUMP=${2:-../shared/data/enwiki-sample.xml.bz2}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT

median_of_five() { # prints the median wall seconds of a command
  for _ in 1 2 3 4 5; do /usr/bin/time -f %e -o "$work/t" -a "$@" >/dev/null 2>&1 || { echo failed; return; }; done
  sort -n "$work/t" | sed -n 3p; rm -f "$work/t"
}

case ${1:-} in
  compare)
    bzcat "$DUMP" >"$work/dump.xml"
    "$PYTHON" -m wikiextractor.WikiExtractor "$work/dump.xml" --json -q --no-templates -o "$work/theirs"
    "$BIN/wiki-extract" "$work/dump.xml" -o - >"$work/ours.jsonl"
    cat "$work"/theirs/*/* >"$work/theirs.jsonl"
    "$PYTHON" bench/wiki_compare.py "$work/theirs.jsonl" "$work/ours.jsonl" ;;
  time)
    bzcat "$DUMP" >"$work/one.xml"
    { sed -n '1,/<\/siteinfo>/p' "$work/one.xml"
      for _ in $(seq 20); do sed '1,/<\/siteinfo>/d;/^<\/mediawiki>/d' "$work/one.xml"; done
      echo '</mediawiki>'; } >"$work/dump.xml"
    bzip2 -k "$work/dump.xml"
    "$BIN/wiki-extract" "$work/dump.xml.bz2" -o - >"$work/a"; "$BIN/wiki-extract" "$work/dump.xml" --processes 1 -o - >"$work/b"
    cmp "$work/a" "$work/b"  # the answer first
    size=$(stat -c %s "$work/dump.xml")
    row() { printf '%-44s %8s s %8s MB/s\n' "$1" "$2" "$(awk -v s="$size" -v t="$2" 'BEGIN{printf "%.0f", s/1e6/t}')"; }
    row "wiki-extract, XML, 1 thread" "$(median_of_five "$BIN/wiki-extract" "$work/dump.xml" --processes 1 -o -)"
    row "wiki-extract, XML, 2 threads" "$(median_of_five "$BIN/wiki-extract" "$work/dump.xml" --processes 2 -o -)"
    row "lbzip2 -dc, 1 thread" "$(median_of_five lbzip2 -dck -n 1 "$work/dump.xml.bz2")"
    row "wiki-extract, bz2, 1 thread" "$(median_of_five "$BIN/wiki-extract" "$work/dump.xml.bz2" --processes 1 -o -)"
    row "lbzip2 -dc, 2 threads" "$(median_of_five lbzip2 -dck -n 2 "$work/dump.xml.bz2")"
    row "wiki-extract, bz2, 2 threads" "$(median_of_five "$BIN/wiki-extract" "$work/dump.xml.bz2" --processes 2 -o -)"
    row "WikiExtractor, XML, 2 processes" "$(median_of_five "$PYTHON" -m wikiextractor.WikiExtractor "$work/dump.xml" --json -q --no-templates --processes 2 -o "$work/theirs")" ;;
  *) sed -n '2,9p' "$0" | sed 's/^# \{0,1\}//'; exit 2 ;;
esac
