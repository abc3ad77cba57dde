# cpack's packages: a .deb with programs in /usr/bin, their man pages, and the packages that they
# need; and an archive that runs where it is unpacked, with the shared libraries that its programs
# need. Neither needs CUDA's libraries.
. "$(dirname "$0")/prelude"
build=$(dirname "$(dirname "$(command -v bpe-tokenize)")")
[ -f "$build/CPackConfig.cmake" ] && command -v dpkg-deb dpkg-shlibdeps >/dev/null ||
  { echo "skipped: dpkg-dev is not installed"; exit 77; }
case $(grep -h '^SANITIZE:' "$build/CMakeCache.txt") in
  *=?*) echo "skipped: a sanitizer's build is not packed"; exit 77 ;;
esac
[ -x "$build/bin/trainer" ] && [ -x "$build/bin/hf-to-megatron" ] ||
  { echo "skipped: not all programs are built"; exit 77; }
for kind in DEB TGZ; do
  cpack --config "$build/CPackConfig.cmake" -G $kind -B "$PWD" >log 2>&1 || cat log
done
dpkg-deb -x ./*.deb deb
ls deb deb/usr
for page in bpe-tokenize.1 indexed.5; do ls deb/usr/share/man/man?/$page; done
ls deb/usr/share/bash-completion/completions/bpe-tokenize \
  deb/usr/lib/cmake/gristmill/gristmill-config.cmake
dpkg-deb -f ./*.deb Depends | tr ',' '\n' | grep -o 'libicu[0-9]*\|libtbb[0-9]*' | sed 's/[0-9]*$//'
# The .deb says what it is for, and asks for no exact version.
dpkg-deb -f ./*.deb Description | wc -l
dpkg-deb -f ./*.deb Depends | grep '(='
mkdir moved && tar xzf ./*.tar.gz -C moved
for bin in deb/usr/bin moved/*/bin; do
  printf 'one\0two\0' |
    env -i PATH=/usr/bin:/bin "$bin/bpe-tokenize" -q -0 -o "${bin%%/*}.out" $VOCAB
  "$bin/json-extract" --version
  env -i "$bin/trainer" --version | grep -v "^GPUs: "  # these depend on the build
  readelf -d "$bin/trainer" | grep -cE 'NEEDED.*lib(cu|nccl|nvrtc)' || true
done
cmp deb.out_text_document.bin moved.out_text_document.bin && echo same
# parquet-extract, where it was built, is a package of its own, laid over the others.
if [ -x "$build/bin/parquet-extract" ]; then
  for kind in DEB TGZ; do
    cpack --config "$build/CPackConfig.cmake" -D CPACK_PART=parquet -G $kind -B "$PWD/parts" \
      >log 2>&1 || cat log
  done
  dpkg-deb -x parts/gristmill-parquet*.deb deb && tar xzf parts/gristmill-parquet*.tar.gz -C moved/*
  for bin in deb/usr/bin moved/*/bin; do
    env -i PATH=/usr/bin:/bin "$bin/parquet-extract" -q -c text "$GOLDEN/columns/zstd.parquet" |
      cmp - "$GOLDEN/columns/expected.00"
    page=$bin/../share/man/man1/parquet-extract.1
    [ -f "$page" ] || [ -f "$page.gz" ] || echo "no page beside $bin"
  done
fi
# No file of the archive asks for a newer glibc than the oldest that README promises, nor for a
# library that is neither glibc's nor in the archive.
files=$(find moved -type f \( -path '*/bin/*' -o -name '*.so*' \))
[ "$(wc -l <<<"$files")" -gt 20 ] || echo "too few files: $files"
for file in $files; do
  readelf --wide --version-info "$file" | grep -o 'GLIBC_[0-9A-Z_][0-9A-Z_.]*' | sort -uV |
    while read -r version; do
      [ "$(printf '%s\nGLIBC_2.27\n' "$version" | sort -V | tail -1)" = GLIBC_2.27 ] ||
        echo "$file asks for $version"
    done
  readelf --wide --dynamic "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
    while read -r library; do
      case $library in
        ld-linux-*.so.2 | lib[cm].so.6 | libpthread.so.0 | libdl.so.2 | librt.so.1) continue ;;
      esac
      [ -e moved/*/lib/gristmill/"$library" ] ||
        echo "$file needs $library, which the archive does not have"
    done
done
# The libraries' licences are there; packaging/licences itself refuses a library that has none.
find moved/*/share/doc/gristmill/licences -type f -size +0 -printf '%f\n' |
  grep -c -x -e 'libicu[0-9]*' -e 'libtbb[0-9]*' -e libssl3 -e libstdc++6
mkdir -p unknown/lib/gristmill && : >unknown/lib/gristmill/libforeign.so.1
"$(dirname "$0")/../../packaging/licences" unknown 2>&1
readelf --wide --version-info deb/usr/bin/trainer | grep -q GRISTMILL_GLIBC &&
  echo "the .deb is not the system's"
# The demo runs from the archive, with the documents as its text.
(
  mkdir demo && cd demo &&
    TRAIN_ITERS=15 VOCAB_SIZE=500 ../moved/*/share/gristmill/demo/run >../log 2>&1 &&
    ls out/demo/hf
) || cat log
ls moved/*/share/gristmill moved/*/share/gristmill/demo/launch deb/usr/share/gristmill/cards
ls moved/*/share/doc/gristmill/docs/launching.md >/dev/null
ldd moved/*/bin/bpe-tokenize | grep -c "$PWD/moved/.*/lib/gristmill/libsimdjson"
