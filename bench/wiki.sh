#!/usr/bin/env bash
# Compares wiki-extract with WikiExtractor and lbzip2, and the way from dump to
# dataset with the tutorials'.
#
#   bench/wiki.sh compare [DUMP]   texts against WikiExtractor's, page by page
#   bench/wiki.sh time [DUMP]      the tools alternately, ROUNDS times: medians of wall and
#                                  processor seconds, and of ratios taken round by round
#   bench/wiki.sh road [DUMP]      dump (bzip2) to merged dataset on two processors: wiki-extract,
#                                  bpe-tokenize, merge-datasets against WikiExtractor,
#                                  preprocess_data.py's loop with the Hugging Face tokenizer under
#                                  xargs, and merge_datasets.py's; alternately in one run
#
# DUMP: a MediaWiki export; default ../shared/data/enwiki-sample.xml.bz2 (time and road: its pages
# COPIES times). Needs: python3 with the package wikiextractor (PYTHON=...), road also what
# bench/whole.py needs, and VOCAB, MERGES, TOKENIZER (default: GPT-2's in ../shared/data); lbzip2.
# BIN: folder of the programs.
set -euo pipefail
cd "$(dirname "$0")/.."
BIN=${BIN:-build/release/bin} PYTHON=${PYTHON:-python3} ROUNDS=${ROUNDS:-5} COPIES=${COPIES:-20}
VOCAB=${VOCAB:-../shared/data/gpt2-vocab.json} MERGES=${MERGES:-../shared/data/gpt2-merges.txt}
TOKENIZER=${TOKENIZER:-../shared/data/gpt2-tokenizer.json}
DUMP=${2:-../shared/data/enwiki-sample.xml.bz2}
work=$(mktemp -d) && trap 'rm -rf -- "$work"' EXIT

repeat_dump() {
  bzcat "$DUMP" >"$work/one.xml"
  { sed -n '1,/<\/siteinfo>/p' "$work/one.xml"
    for _ in $(seq "$COPIES"); do sed '1,/<\/siteinfo>/d;/^<\/mediawiki>/d' "$work/one.xml"; done
    echo '</mediawiki>'; } >"$work/dump.xml"
  bzip2 -k "$work/dump.xml"
}
once() { # NAME COMMAND...: a line "name wall cpu" in the table of times
  local name=$1; shift
  /usr/bin/time -f '%e %U %S' -o "$work/t" "$@" >/dev/null 2>"$work/said" ||
    { cat "$work/said"; exit 1; }
  awk -v name="$name" '{ print name "\t" $1 "\t" $2 + $3 }' "$work/t" >>"$work/times"
}
report() { # BASE: medians, and ratios to BASE round by round
  "$PYTHON" - "$work/times" "$1" "$(stat -c %s "$work/dump.xml")" <<'END'
import statistics, sys
rows = {}
for line in open(sys.argv[1]):
    name, wall, cpu = line.rstrip("\n").split("\t")
    rows.setdefault(name, []).append((float(wall), max(float(cpu), 0.01)))
size = int(sys.argv[3]) / 1e6
print(f"{size:.1f} MB of XML; {'':15} {'wall s':>8} {'cpu s':>8} {'MB/cpu s':>9}  "
      f"ratio of {sys.argv[2]} to it: wall, cpu")
for name, taken in rows.items():
    base = rows[sys.argv[2]]
    ratio = [statistics.median(b[k] / t[k] for b, t in zip(base, taken)) for k in (0, 1)]
    wall, cpu = (statistics.median(t[k] for t in taken) for k in (0, 1))
    print(f"{name:34} {wall:8.2f} {cpu:8.2f} {size / cpu:9.1f}  {ratio[0]:8.2f} {ratio[1]:8.2f}")
END
}

case ${1:-} in
  compare)
    bzcat "$DUMP" >"$work/dump.xml"
    case $(head -c 2 "$work/dump.xml" | od -An -tx1) in  # WikiExtractor reads UTF-8 alone
      ' ff fe' | ' fe ff')
        iconv -f UTF-16 -t UTF-8 "$work/dump.xml" >"$work/utf8.xml"
        mv "$work/utf8.xml" "$work/dump.xml" ;;
    esac
    "$PYTHON" -m wikiextractor.WikiExtractor "$work/dump.xml" --json -q --no-templates \
      -o "$work/theirs"
    "$BIN/wiki-extract" -q "$DUMP" -o - >"$work/ours.jsonl"
    cat "$work"/theirs/*/* >"$work/theirs.jsonl"
    "$PYTHON" bench/wiki_compare.py "$work/theirs.jsonl" "$work/ours.jsonl" ;;
  time)
    repeat_dump
    "$BIN/wiki-extract" -q "$work/dump.xml.bz2" -o - >"$work/a"
    "$BIN/wiki-extract" -q "$work/dump.xml" --processes 1 -o - | cmp - "$work/a"  # the answer first
    for _ in $(seq "$ROUNDS"); do
      for n in 1 2; do
        once "wiki-extract, XML, $n threads" "$BIN/wiki-extract" -q "$work/dump.xml" \
          --processes $n -o -
        once "wiki-extract, bzip2, $n threads" "$BIN/wiki-extract" -q "$work/dump.xml.bz2" \
          --processes $n -o -
        once "lbzip2 -dc -n $n" lbzip2 -dck -n $n "$work/dump.xml.bz2"
      done
      once "WikiExtractor, XML, 1 process" "$PYTHON" -m wikiextractor.WikiExtractor \
        "$work/dump.xml" --json -q --no-templates --processes 1 -o "$work/theirs"
    done
    for base in "WikiExtractor, XML, 1 process" "wiki-extract, bzip2, 1 threads" \
      "wiki-extract, bzip2, 2 threads"; do
      report "$base"
    done ;;
  road)
    repeat_dump
    export BIN PYTHON VOCAB MERGES TOKENIZER work
    cat >"$work/ours" <<'END'
set -euo pipefail
mkdir -p "$work/o"
seq 2 | xargs -P 2 -n 1 sh -c '
  "$BIN/wiki-extract" -q --range $1/2 --processes 1 --discard_empty -o - "$work/dump.xml.bz2" |
    "$BIN/bpe-tokenize" -q --force --output-prefix "$work/o/$1" \
      --vocab-file "$VOCAB" --merge-file "$MERGES" --append-eod --workers 1' part
"$BIN/merge-datasets" -q --force --input "$work/o" --output-prefix "$work/ours_text_document"
END
    cat >"$work/theirs.sh" <<'END'
set -euo pipefail
rm -rf "$work/w" "$work/tokens"
mkdir "$work/tokens"
"$PYTHON" -m wikiextractor.WikiExtractor "$work/dump.xml.bz2" --json -q --no-templates \
  --discard_empty --processes 2 -b 4M -o "$work/w"
find "$work/w" -name 'wiki_*' -print0 | sort -z | xargs -0 -P 2 -n 1 sh -c '
  "$PYTHON" bench/whole.py --peer megatron-slow --threads 1 --vocab "$VOCAB" --merges "$MERGES" \
    --tokenizer "$TOKENIZER" --prefix "$work/tokens/$(basename "$1")" "$1"' part
"$PYTHON" - <<'MERGE'
import glob, os
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder
work = os.environ["work"]
parts = sorted(p[:-4] for p in glob.glob(work + "/tokens/*.idx"))
first = IndexedDataset(parts[0])
builder = IndexedDatasetBuilder(work + "/theirs_text_document.bin", dtype=first.index.dtype)
for part in parts:
    builder.add_index(part)
builder.finalize(work + "/theirs_text_document.idx")
MERGE
END
    for _ in $(seq "$ROUNDS"); do
      once "the tutorials' road" bash "$work/theirs.sh"
      once "wiki-extract, ..., merge-datasets" bash "$work/ours"
    done
    for road in ours theirs; do
      echo "$road: $(stat -c %s "$work/${road}_text_document.bin") bytes of tokens"
    done
    report "the tutorials' road" ;;
  *) sed -n '/^set /q; 2,$p' "$0" | sed 's/^# \{0,1\}//'; exit 2 ;;
esac
