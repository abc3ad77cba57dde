# The wheel: its name, its record, and what `pip install FILE` gives in a fresh
# environment without network.
. "$(dirname "$0")/prelude"
build=$(dirname "$(dirname "$(command -v bpe-tokenize)")")
make=$(dirname "$0")/../../packaging/make_wheel
[ -x "$build/packaging/lower-glibc" ] && [ -x "$build/bin/trainer" ] &&
  [ -x "$build/bin/hf-to-megatron" ] ||
  { echo "skipped: not all programs are built"; exit 77; }
python3 -m venv environment >log 2>&1 || { echo "skipped: python3-venv is not installed"; exit 77; }
wheel=$("$make" "$build" "$PWD") && echo "${wheel##*/}" && ls -A | grep -v -x -e log -e environment
# Every file is recorded with its digest and size; programs may be executed, no file
# of Python is among them.
python3 - "$wheel" <<'END'
import base64, csv, hashlib, io, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    names = wheel.namelist()
    rows = {row[0]: row for row in csv.reader(io.StringIO(wheel.read(names[-1]).decode()))}
    print(names[-1], sorted(rows) == sorted(names))
    for name in names[:-1]:
        digest = hashlib.sha256(wheel.read(name)).digest()
        digest = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        assert rows[name][1:] == ["sha256=" + digest, str(wheel.getinfo(name).file_size)], name
    programs = [item for item in wheel.infolist() if ".data/scripts/" in item.filename]
    assert len(programs) >= 13 and all(item.external_attr >> 16 & 0o111 for item in programs)
    assert all(wheel.read(item)[:4] == b"\x7fELF" for item in programs)
    print(wheel.read(next(n for n in names if n.endswith("/WHEEL"))).decode(), end="")
END
environment/bin/pip install --quiet --no-index --disable-pip-version-check "$wheel"
# Its files ask for no newer glibc than its name says.
for file in environment/bin/{bpe-tokenize,trainer} environment/lib/gristmill/*; do
  readelf --wide --version-info "$file" 2>/dev/null |
    grep -oE 'GLIBC_2\.(2[89]|[3-9][0-9])' | sort -u | sed "s|^|$file: |"
done
for program in bpe-tokenize trainer megatron-to-hf; do
  env -i "environment/bin/$program" --version | head -1
done
printf 'one\0two\0' | env -i environment/bin/bpe-tokenize -q -0 -o pip $VOCAB &&
  printf 'one\0two\0' | bpe-tokenize -q -0 -o built $VOCAB
cmp pip_text_document.bin built_text_document.bin && echo same
ldd environment/bin/bpe-tokenize | grep -o "$PWD/environment/[^ ]*stdc[^ ]*" |
  sed "s|$PWD/||; s|bin/\.\./||"
ls environment/share/doc/gristmill/licences |
  grep -c -x -e 'libicu[0-9]*' -e 'libtbb[0-9]*' -e libssl3
ls environment/share/man/man1/trainer.1 environment/share/gristmill
environment/bin/pip uninstall --quiet --yes --disable-pip-version-check gristmill &&
  find environment -name '*gristmill*' -o -name 'bpe-*'
