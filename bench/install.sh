#!/usr/bin/env bash
# Seconds from a package's file to the first token ids, in roots of other releases in which nothing
# is installed before, and the size of each package.
#   bench/install.sh BUILD_FOLDER VOCAB MERGES CORPUS.jsonl [RELEASE...]
#                      default: bionic bullseye jammy
# BUILD_FOLDER has what `./bootstrap package` makes. The archive is unpacked; the wheel goes
# into a new Python environment, where the root has Python with venv and a pip of 20.3 or newer;
# the .deb is installed by apt with what it needs from the mirror, on bookworm, for which it is
# made. Then bpe-tokenize makes a dataset of the corpus's first 100 lines, and inspect-dataset
# shows the ids of one document. Each three times; medians. Needs root and debootstrap.
# Environment: ROOTS (build/roots).
set -euo pipefail
build=$(realpath -- "$1") vocab=$(realpath -- "$2")
merges=$(realpath -- "$3") corpus=$(realpath -- "$4")
shift 4
[ $# -gt 0 ] || set -- bionic bullseye jammy
cd "$(dirname "$0")/.."
. tests/systems/roots

session() { # package's file; runs in the root
  set -euo pipefail
  cd "$(mktemp -d)"
  begin=$(date +%s.%N)
  case $1 in
    *.tar.gz) tar xzf "$1"; PATH=$(echo "$PWD"/*/bin):$PATH ;;
    *.whl) python3 -m venv e && e/bin/pip install -q --no-index --disable-pip-version-check "$1"
      PATH=$PWD/e/bin:$PATH ;;
    *.deb) apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
      apt-get install -qq -y --no-install-recommends "$1" >log 2>&1 || cat log ;;
  esac
  bpe-tokenize -q --append-eod --vocab-file /tmp/vocab.json --merge-file /tmp/merges.txt \
    --output-prefix d /tmp/corpus.jsonl
  inspect-dataset peek --ids d_text_document >ids
  end=$(date +%s.%N)
  grep -q '[0-9]' ids
  sha256sum d_text_document.bin | cut -c1-16
  awk -v a="$begin" -v b="$end" 'BEGIN { print b - a }'
}

measure() { # release, package's file
  local name=${2##*/} n out seconds=() digests=()
  cp "$2" "$ROOTS/$1/tmp/"
  { declare -f session; echo 'session "$1"'; } >"$ROOTS/$1/tmp/session"
  for n in 1 2 3; do
    [ "${name##*.}" != deb ] || enter "$1" bash -c '
      apt-get -qq -y purge gristmill >/dev/null 2>&1
      apt-get -qq -y autoremove --purge >/dev/null 2>&1
      apt-get clean
      rm -rf /var/lib/apt/lists/*'
    out=$(enter "$1" bash /tmp/session "/tmp/$name") ||
      { echo "$1, $name: failed: $out"; return 1; }
    digests+=("$(head -1 <<<"$out")") seconds+=("$(tail -1 <<<"$out")")
  done
  printf '%-9s glibc %-5s %-58s %5.1f MB  %6.2f s (%s)  %s\n' "$1" \
    "$(chroot "$ROOTS/$1" ldd --version | sed -n '1s/.* //p')" "$name" \
    "$(awk -v n="$(stat -c %s "$2")" 'BEGIN { print n / 1e6 }')" \
    "$(printf '%s\n' "${seconds[@]}" | sort -n | sed -n 2p)" "${seconds[*]}" \
    "$(printf '%s\n' "${digests[@]}" | sort -u | tr '\n' ' ')"
  rm -rf "$ROOTS/$1/tmp/$name" "$ROOTS/$1"/tmp/tmp.*
}

echo "$(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2-), $(nproc) cores, load $(
  cut -d' ' -f1 /proc/loadavg), commit $(git rev-parse --short HEAD)"
(cd "$build" && stat -c '%n %s bytes' gristmill-*.tar.gz gristmill-*.deb gristmill-*.whl)
for release; do
  make_root "$release"
  cp "$vocab" "$ROOTS/$release/tmp/vocab.json"
  cp "$merges" "$ROOTS/$release/tmp/merges.txt"
  head -n 100 "$corpus" >"$ROOTS/$release/tmp/corpus.jsonl"
  measure "$release" "$(ls "$build"/gristmill-[0-9]*.tar.gz)"
  ! chroot "$ROOTS/$release" python3 -c 'import ensurepip, sys' 2>/dev/null ||
    measure "$release" "$(ls "$build"/gristmill-*.whl)"
  [ "$release" != bookworm ] || measure "$release" "$(ls "$build"/gristmill-[0-9]*.deb)"
done
