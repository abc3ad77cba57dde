#!/usr/bin/env bash
# What a compiler does not check: who may include whom (docs/architecture.md, section 3), the limits of
# docs/style.md, section 2, room cards, docstrings of public headers, formatting. Prints each finding as
# file:line: reason and exits 1 if there was any.
set -u
cd "$(dirname "$0")/.."
bad=0
report() { printf '%s\n' "$*"; bad=1; }

# forbid ROOM PATTERN...: no file of ROOM may include a path that matches PATTERN.
forbid() {
  local room=$1 pattern; shift
  [ -e "$room" ] || return 0
  for pattern in "$@"; do
    while IFS= read -r line; do report "$line: $room must not include $pattern"; done < <(
      git ls-files -z -- "$room" | grep -zE '\.(h|cc|cu|cuh)$' | xargs -0r grep -nHE "^#include [<\"]($pattern)" | cut -d: -f1,2)
  done
}
forbid libtok 'libindexed/' 'tools/' 'trainer/' 'convert/' 'simdjson' 'tbb/' 'oneapi/' 'unistd\.h' 'fcntl\.h' 'fstream' 'iostream' 'thread>'
forbid libindexed 'libtok/' 'tools/' 'trainer/' 'convert/' 'simdjson' 'unicode/' 'tbb/' 'oneapi/'
forbid tools/cli 'libtok/' 'trainer/' 'convert/' 'tools/stream/' 'simdjson'
forbid tools/stream 'libtok/' 'trainer/' 'convert/'
forbid tools 'trainer/' 'convert/'
forbid trainer/ops 'trainer/(model|comm|parallel|schedule|optim|checkpoint|log|data|config)/' 'lib(tok|indexed)/' 'tools/'
forbid trainer/ops/cpu 'cuda' 'cublas' 'cudnn' 'nccl'
forbid trainer/model 'trainer/ops/(cpu|cuda)/' 'trainer/(data|config|log|checkpoint)/' 'cuda' 'nccl'
forbid trainer/parallel 'trainer/ops/(cpu|cuda)/' 'cuda' 'nccl'
forbid trainer/optim 'trainer/ops/(cpu|cuda)/' 'cuda' 'nccl'
forbid trainer/schedule 'trainer/ops/' 'trainer/(data|config|log|checkpoint)/'
forbid trainer/data 'trainer/(ops|model|comm|optim|checkpoint|schedule)/' 'libtok/'
forbid convert 'trainer/(data|schedule|log|comm)/'

sources() { git ls-files -- '*.h' '*.cc' '*.cu' '*.cuh'; }
lines_over() { # limit, suffix
  while IFS= read -r f; do
    n=$(wc -l <"$f")
    [ "$n" -le "$1" ] || head -40 "$f" | grep -q 'Longer than' || report "$f:$n: over $1 lines (split it, or say why: 'Longer than ...' in the room card)"
  done < <(sources | grep -E "\.$2\$" | grep -vE '_tables\.cc$')
}
lines_over 250 'h'
lines_over 600 'cc'
lines_over 500 'cu'

while IFS= read -r f; do
  case "$f" in *_tables.cc) continue ;; esac
  head -1 "$f" | grep -q 'SPDX-License-Identifier: MIT' || head -12 "$f" | grep -q 'SPDX-License-Identifier: MIT' || report "$f:1: no SPDX line"
  head -20 "$f" | grep -cE '^//' | awk '{exit !($1 >= 2)}' || report "$f:1: no room card"
  case "$f" in *.h) grep -q '^#pragma once' "$f" || report "$f:1: no #pragma once" ;; esac
  while IFS= read -r hit; do report "$f:$hit: longer than 100 columns"; done < <(LC_ALL=C.UTF-8 grep -nE '^.{101,}' "$f" | cut -d: -f1 | head -3)
done < <(sources)

# Every free function, class and struct a library header promises has a /// docstring above it.
while IFS= read -r f; do
  awk -v file="$f" '
    /^\/\/\/|^  \/\/\// {doc = NR}
    /^template/ {next_ok = NR; if (doc == NR - 1) doc = NR}
    /^(class|struct|enum class) [A-Z][A-Za-z0-9]*( final)?( :[^:].*)? \{/ {if (doc < NR - 1) printf "%s:%d: no /// above %s %s\n", file, NR, $1, $2}
  ' "$f"
done < <(git ls-files -- 'libtok/*.h' 'libindexed/*.h' 'tools/*/*.h' 'trainer/**/*.h' 'convert/**/*.h') >/tmp/lint.$$ 2>/dev/null
if [ -s /tmp/lint.$$ ]; then cat /tmp/lint.$$; bad=1; fi
rm -f /tmp/lint.$$

# Tests that docs/promises.md names.
cases=$(git ls-files -z -- 'tests/*.cc' | xargs -0 cat | tr -d '\n ' | grep -oE '(TEST|TEST_F|TEST_P|TYPED_TEST)\([A-Za-z0-9]+,[A-Za-z0-9]+\)')
while IFS=. read -r suite name; do
  if [ "$suite" = tool ]; then [ -f "tests/tools/$name.sh" ]; else grep -qE "\($suite,$name\)" <<<"$cases"; fi ||
    report "docs/promises.md:1: there is no test $suite.$name"
done < <(grep -oE '`[A-Za-z0-9]+\.[A-Za-z0-9-]+`' docs/promises.md | tr -d '`' | grep -v '^ctest')

[ "$(wc -l <CMakeLists.txt)" -le 300 ] || report "CMakeLists.txt:1: over 300 lines"
while IFS= read -r hit; do report "$hit: a path of one machine"; done < <(git grep -nE '(^|[^A-Za-z])/(work|root)/' -- ':!tests/lint.sh' | cut -d: -f1,2)
if command -v clang-format >/dev/null; then
  sources | grep -vE '_tables\.cc$' | xargs -r clang-format --dry-run 2>&1 | grep -E 'warning:' | sed 's/: warning:.*/: not formatted (clang-format -i)/' | sort -u -t: -k1,1 >/tmp/lint.$$
  if [ -s /tmp/lint.$$ ]; then cat /tmp/lint.$$; bad=1; fi
  rm -f /tmp/lint.$$
fi
while IFS= read -r f; do report "$f: not tracked and not ignored"; done < <(git ls-files --others --exclude-standard)
exit $bad
