#!/usr/bin/env bash
# Unpacks libraries that Debian does not have, out of their PyPI wheels, through pip; nothing else
# of these is kept.
#   cmake/fetch_headers.sh [DIRECTORY]      cudnn-frontend (MIT) and CUTLASS (BSD), headers alone,
#                                           for a CUDA build, into DIRECTORY/include; default:
#                                           build/cuda-headers
#   cmake/fetch_headers.sh DIRECTORY arrow  Apache Arrow's C++ library (Apache 2) out of pyarrow,
#                                           for parquet-extract: headers into DIRECTORY/include,
#                                           libarrow and libparquet into DIRECTORY/lib
# Does nothing where they are already. CUDNN_FRONTEND_VERSION, CUTLASS_VERSION and ARROW_VERSION
# choose other releases.
set -euo pipefail
directory=${1:-build/cuda-headers}
what=${2:-cuda}
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT

# fetch WHEEL VERSION FILE SOURCE=TARGET...: what the wheel has under a name that begins with SOURCE
# lies under TARGET, unless FILE is there. PIP_OPTIONS: more for pip.
fetch() {
  local wheel=$1 version=$2 file=$3; shift 3
  compgen -G "$directory/$file" >/dev/null && return
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    ${PIP_OPTIONS:-} --dest "$scratch/$wheel" "$wheel==$version" || {
    echo "fetch_headers: pip could not download $wheel $version; put its headers under" \
      "$directory/include yourself, or build without it" >&2
    exit 1
  }
  python3 - "$scratch/$wheel" "$directory" "$@" <<'PYTHON'
import pathlib, sys, zipfile
scratch, directory = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
rows = [row.split("=") for row in sys.argv[3:]]
wheel = zipfile.ZipFile(next(scratch.glob("*.whl")))
for name in wheel.namelist():
    for source, target in rows:
        if name.startswith(source) and not name.endswith("/"):
            path = directory / (target + name[len(source):])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(wheel.read(name))
    if ("LICENSE" in name.upper() or "NOTICE" in name.upper()) and not name.endswith("/"):
        folder = directory / "licences"
        folder.mkdir(parents=True, exist_ok=True)
        archive, file = wheel.filename.split("/")[-1], name.split("/")[-1]
        (folder / (archive + "." + file)).write_bytes(wheel.read(name))
PYTHON
  compgen -G "$directory/$file" >/dev/null || {
    echo "fetch_headers: $wheel $version holds no $file" >&2
    exit 1
  }
}

case $what in
  cuda)
    fetch nvidia-cudnn-frontend "${CUDNN_FRONTEND_VERSION:-1.32.0}" include/cudnn_frontend.h \
      include/=include/
    fetch nvidia-cutlass "${CUTLASS_VERSION:-4.2.0.0}" include/cutlass/util/packed_stride.hpp \
      cutlass_library/source/include/=include/ cutlass_library/source/tools/util/include/=include/
    ;;
  arrow)
    # The libraries are the same for every Python; one is named, so that whatever runs here takes
    # them.
    PIP_OPTIONS="--implementation cp --python-version 3.11 --abi cp311"
    PIP_OPTIONS+=" --platform manylinux_2_28_$(uname -m)"
    fetch pyarrow "${ARROW_VERSION:-26.0.0}" 'lib/libparquet.so*' pyarrow/include/=include/ \
      pyarrow/libarrow.so=lib/libarrow.so pyarrow/libparquet.so=lib/libparquet.so
    ;;
  *) echo "fetch_headers: what is $what: cuda or arrow" >&2; exit 2 ;;
esac
