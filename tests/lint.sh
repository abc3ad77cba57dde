#!/usr/bin/env bash
# What a compiler does not check: who may include whom (docs/architecture.md, section 3), the limits
# of docs/style.md, section 2, room cards, docstrings of public headers, formatting. Prints each
# finding as file:line: reason and exits 1 if there was any.
set -u
cd "$(dirname "$0")/.."
bad=0
report() { printf '%s\n' "$*"; bad=1; }

# Who may include whom: docs/architecture.md, section 3, whose tables are read here. Rows of the
# first say "room | what it may include" (a room, one header of it, or "every room of X [but Y]"),
# of the second "header | rooms and files that alone may include it".
while IFS= read -r hit; do report "$hit"; done < <(
  git ls-files -z -- libtok libindexed tools trainer convert | grep -zE '\.(h|cc|cu|cuh)$' |
    xargs -0 grep -nHoE '^#include [<"][^>"]+' | awk '
      function names(text, list,   n) { # the words in backquotes
        n = 0
        while (match(text, /`[^`]+`/)) {
          list[++n] = substr(text, RSTART + 1, RLENGTH - 2)
          text = substr(text, RSTART + RLENGTH)
        }
        return n
      }
      function room_of(path,   room) {
        for (room = path; sub(/\/[^\/]*$/, "", room);) if (room in rooms) return room
        return ""
      }
      function begins(path, name) { return path == name || index(path, name "/") == 1 }
      FNR == NR {
        if (/^## /) table = 0
        if (/^\| room \|/) table = 1
        if (/^\| header \|/) table = 2
        if (!table || !/^\| `/) next
        split($0, cell, "|")
        if (table == 1) {
          names(cell[2], word); rooms[word[1]] = cell[3]
        } else {
          for (i = names(cell[2], word); i > 0; --i) library[word[i]] = cell[3]
        }
        next
      }
      {
        split($0, part, ":"); path = part[1]; quoted = part[3] ~ /"/
        header = part[3]; sub(/^#include [<"]/, "", header)
        room = room_of(path)
        if (room == "") { print path ":" part[2] ": no room of docs/architecture.md"; next }
        if (quoted) {
          other = room_of(header)
          if (other == "" || other == room) next
          row = rooms[room]; ok = 0
          if (match(row, /every room of [a-z]+/)) {
            all = substr(row, RSTART + 14, RLENGTH - 14)
            ok = begins(header, all) && !(row ~ /but generation/ && other == "trainer/generation")
          }
          for (i = names(row, word); i > 0; --i) ok = ok || other == word[i] || header == word[i]
          if (!ok) print path ":" part[2] ": " room " must not include " header
          next
        }
        for (name in library) {
          if (index(header, name) != 1) continue
          ok = 0
          for (i = names(library[name], word); i > 0; --i) ok = ok || begins(path, word[i])
          if (!ok) print path ":" part[2] ": " room " must not include <" header ">"
        }
      }' docs/architecture.md -)

sources() { git ls-files -- '*.h' '*.cc' '*.cu' '*.cuh'; }
lines_over() { # limit, suffix
  while IFS= read -r f; do
    n=$(wc -l <"$f")
    [ "$n" -le "$1" ] || head -40 "$f" | grep -q 'Longer than' ||
      report "$f:$n: over $1 lines (split it, or say why: 'Longer than ...' in the room card)"
  done < <(sources | grep -E "\.$2\$" | grep -vE '_tables\.cc$')
}
lines_over 250 'h'
lines_over 600 'cc'
lines_over 500 'cu'

while IFS= read -r f; do
  case "$f" in *_tables.cc) continue ;; esac
  head -12 "$f" | grep -q 'SPDX-License-Identifier: MIT' || report "$f:1: no SPDX line"
  head -20 "$f" | grep -cE '^//' | awk '{exit !($1 >= 2)}' || report "$f:1: no room card"
  case "$f" in *.h) grep -q '^#pragma once' "$f" || report "$f:1: no #pragma once" ;; esac
done < <(sources)

# Lines of sources and scripts: not those of data, of what a test expects, or of generated tables.
data=(':!*.json' ':!*.jsonl' ':!*.svg' ':!tests/golden' ':!tests/fuzz/corpus'
  ':!*.out' ':!*.err' ':!*_tables.cc')
while IFS=: read -r f line _; do report "$f:$line: longer than 100 columns"; done < <(
  git ls-files -z -- . ':!*.md' "${data[@]}" |
    LC_ALL=C.UTF-8 xargs -0 grep -nHIE '^.{101,}')

# Prose of documents: not tables, code, or the one line that names a man page.
while IFS= read -r f; do
  while IFS= read -r hit; do report "$f:$hit: longer than 100 columns"; done < <(
    awk '/^```/ { code = !code } !code { print NR ":" $0 }' "$f" |
      LC_ALL=C.UTF-8 grep -E '^[0-9]+:[^| ].{100,}' | grep -vE '^[0-9]+:[a-z-]+ - ' | cut -d: -f1)
done < <(git ls-files -- '*.md')

# Every free function, class and struct a library header promises has a /// docstring above it.
while IFS= read -r f; do
  awk -v file="$f" '
    /^\/\/\/|^  \/\/\// {doc = NR}
    /^template/ {next_ok = NR; if (doc == NR - 1) doc = NR}
    /^(class|struct|enum class) [A-Z][A-Za-z0-9]*( final)?( :[^:].*)? \{/ {
      if (doc < NR - 1) printf "%s:%d: no /// above %s %s\n", file, NR, $1, $2
    }
  ' "$f"
done < <(git ls-files -- 'libtok/*.h' 'libindexed/*.h' 'tools/*/*.h' 'trainer/**/*.h' \
  'convert/**/*.h') >/tmp/lint.$$ 2>/dev/null
if [ -s /tmp/lint.$$ ]; then cat /tmp/lint.$$; bad=1; fi
rm -f /tmp/lint.$$

# Tests that docs/promises.md names.
cases=$(git ls-files -z -- 'tests/*.cc' | xargs -0 cat | tr -d '\n ' |
  grep -oE '(TEST|TEST_F|TEST_P|TYPED_TEST)\([A-Za-z0-9]+,[A-Za-z0-9]+\)')
while IFS=. read -r suite name; do
  if [ "$suite" = tool ]; then
    [ -f "tests/tools/$name.sh" ]
  else
    grep -qE "\($suite,$name\)" <<<"$cases"
  fi ||
    report "docs/promises.md:1: there is no test $suite.$name"
done < <(grep -oE '`[A-Za-z0-9]+\.[A-Za-z0-9-]+`' docs/promises.md | tr -d '`' | grep -v '^ctest')

# What a test writes outside of a folder of its own, another test or another checkout's may write
# too.
while IFS= read -r hit; do
  report "$hit: names that tests share: tests/own.h has a folder for each"
done < <(
  git grep -nE 'TempDir\(\)|[0-9]{4,5} \+ (getpid\(\)|RANDOM) %' -- tests \
    ':!tests/lint.sh' ':!tests/tools/slurm_cluster' |
    grep -v 'TempDir().*getpid()' | cut -d: -f1,2)

[ "$(wc -l <CMakeLists.txt)" -le 100 ] || report "CMakeLists.txt:1: over 100 lines"
while IFS= read -r hit; do report "$hit: a path of one machine"; done < <(
  git grep -nE '(^|[^A-Za-z])/(work|root)/' -- ':!tests/lint.sh' | cut -d: -f1,2)
# Other releases of clang-format break some lines elsewhere.
format=$(command -v clang-format-14 clang-format | head -1)
if [ -n "$format" ] && "$format" --version | grep -q 'version 14\.'; then
  sources | grep -vE '_tables\.cc$' | xargs -r "$format" --dry-run 2>&1 | grep -E 'warning:' |
    sed 's/: warning:.*/: not formatted (clang-format -i)/' | sort -u -t: -k1,1 >/tmp/lint.$$
  if [ -s /tmp/lint.$$ ]; then cat /tmp/lint.$$; bad=1; fi
  rm -f /tmp/lint.$$
fi
while IFS= read -r f; do report "$f: not tracked and not ignored"; done < <(
  git ls-files --others --exclude-standard)
exit $bad
