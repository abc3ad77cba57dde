#!/usr/bin/env bash
# Unpacks the header-only libraries of a CUDA build, cudnn-frontend (MIT) and CUTLASS (BSD), into DIRECTORY/include.
#   cmake/fetch_headers.sh [DIRECTORY]      default: build/cuda-headers
# They come from the wheels nvidia-cudnn-frontend and nvidia-cutlass through pip; nothing else of these is kept. Does nothing
# where the headers are already. CUDNN_FRONTEND_VERSION and CUTLASS_VERSION choose other releases.
set -euo pipefail
directory=${1:-build/cuda-headers}
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT

# fetch WHEEL VERSION HEADER FOLDER...: the wheel's FOLDERs become include/, unless include/HEADER is there.
fetch() {
  local wheel=$1 version=$2 header=$3; shift 3
  [ -f "$directory/include/$header" ] && return
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --dest "$scratch/$wheel" "$wheel==$version" || {
    echo "fetch_headers: pip could not download $wheel $version; put its headers under $directory/include" \
      "yourself, or build with CUDA=off" >&2
    exit 1
  }
  python3 - "$scratch/$wheel" "$directory" "$@" <<'PYTHON'
import pathlib, sys, zipfile
scratch, directory, folders = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
wheel = zipfile.ZipFile(next(scratch.glob("*.whl")))
for name in wheel.namelist():
    for folder in folders:
        if name.startswith(folder) and not name.endswith("/"):
            target = directory / "include" / name[len(folder):]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(wheel.read(name))
    if "LICENSE" in name.upper():
        (directory / "licences").mkdir(parents=True, exist_ok=True)
        (directory / "licences" / (wheel.filename.split("/")[-1] + "." + name.split("/")[-1])).write_bytes(wheel.read(name))
PYTHON
  [ -f "$directory/include/$header" ] || { echo "fetch_headers: $wheel $version holds no $header" >&2; exit 1; }
}

fetch nvidia-cudnn-frontend "${CUDNN_FRONTEND_VERSION:-1.32.0}" cudnn_frontend.h include/
fetch nvidia-cutlass "${CUTLASS_VERSION:-4.2.0.0}" cutlass/util/packed_stride.hpp cutlass_library/source/include/ \
  cutlass_library/source/tools/util/include/
