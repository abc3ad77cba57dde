# cpack's packages: a .deb with programs in /usr/bin, their man pages, and the packages that they
# need; and an archive that runs where it is unpacked, with the shared libraries that its programs
# need. Neither needs CUDA's libraries.
. "$(dirname "$0")/prelude"
build=$(dirname "$(dirname "$(command -v bpe-tokenize)")")
[ -f "$build/CPackConfig.cmake" ] && command -v dpkg-deb dpkg-shlibdeps >/dev/null ||
  { echo "skipped: dpkg-dev is not installed"; exit 77; }
case $(grep -h '^SANITIZE:' "$build/CMakeCache.txt") in *=?*) echo 'skipped: a sanitizer'"'"'s build is not packed'; exit 77 ;; esac
[ -x "$build/bin/trainer" ] && [ -x "$build/bin/hf-to-megatron" ] ||
  { echo "skipped: not all programs are built"; exit 77; }
for kind in DEB TGZ; do cpack --config "$build/CPackConfig.cmake" -G $kind -B "$PWD" >log 2>&1 || cat log; done
dpkg-deb -x ./*.deb deb
ls deb deb/usr
for page in bpe-tokenize.1 indexed.5; do ls deb/usr/share/man/man?/$page; done
ls deb/usr/share/bash-completion/completions/bpe-tokenize deb/usr/lib/cmake/gristmill/gristmill-config.cmake
dpkg-deb -f ./*.deb Depends | tr ',' '\n' | grep -o 'libicu[0-9]*\|libtbb[0-9]*' | sed 's/[0-9]*$//'
mkdir moved && tar xzf ./*.tar.gz -C moved
for bin in deb/usr/bin moved/*/bin; do
  printf 'one\0two\0' | env -i PATH=/usr/bin:/bin "$bin/bpe-tokenize" -q -0 -o "${bin%%/*}.out" $VOCAB
  "$bin/json-extract" --version
  env -i "$bin/trainer" --version | grep -v "^GPUs: "  # these depend on the build
  readelf -d "$bin/trainer" | grep -cE 'NEEDED.*lib(cu|nccl|nvrtc)' || true
done
cmp deb.out_text_document.bin moved.out_text_document.bin && echo same
# parquet-extract, where it was built, is a package of its own, laid over the others.
if [ -x "$build/bin/parquet-extract" ]; then
  for kind in DEB TGZ; do cpack --config "$build/CPackConfig.cmake" -D CPACK_PART=parquet -G $kind -B "$PWD/parts" >log 2>&1 || cat log; done
  dpkg-deb -x parts/gristmill-parquet*.deb deb && tar xzf parts/gristmill-parquet*.tar.gz -C moved/*
  for bin in deb/usr/bin moved/*/bin; do
    env -i PATH=/usr/bin:/bin "$bin/parquet-extract" -q -c text "$GOLDEN/columns/zstd.parquet" | cmp - "$GOLDEN/columns/expected.00"
    [ -f "$bin/../share/man/man1/parquet-extract.1" ] || [ -f "$bin/../share/man/man1/parquet-extract.1.gz" ] || echo "no page beside $bin"
  done
fi
ldd moved/*/bin/bpe-tokenize | grep -c "$PWD/moved/.*/lib/gristmill/libsimdjson"
