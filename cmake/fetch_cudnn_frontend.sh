#!/usr/bin/env bash
# Unpacks the headers of cudnn-frontend (header-only, MIT) into DIRECTORY/include, for a CUDA build.
#   cmake/fetch_cudnn_frontend.sh [DIRECTORY]      default: build/cudnn-frontend
# The headers come from the wheel nvidia-cudnn-frontend through pip; nothing else of it is kept. Does nothing
# where the headers are already. CUDNN_FRONTEND_VERSION chooses another release.
set -euo pipefail
directory=${1:-build/cudnn-frontend}
version=${CUDNN_FRONTEND_VERSION:-1.32.0}
[ -f "$directory/include/cudnn_frontend.h" ] && exit 0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
  --dest "$scratch" "nvidia-cudnn-frontend==$version" || {
  echo "fetch_cudnn_frontend: pip could not download nvidia-cudnn-frontend $version; put cudnn-frontend's" \
    "include/ under $directory yourself, or build with CUDA=off" >&2
  exit 1
}
python3 - "$scratch" "$directory" <<'PYTHON'
import pathlib, sys, zipfile
scratch, directory = map(pathlib.Path, sys.argv[1:])
wheel = zipfile.ZipFile(next(scratch.glob("*.whl")))
names = [n for n in wheel.namelist() if n.startswith("include/") or "LICENSE" in n.upper()]
wheel.extractall(directory, names)
PYTHON
[ -f "$directory/include/cudnn_frontend.h" ] || {
  echo "fetch_cudnn_frontend: the wheel $version holds no include/cudnn_frontend.h" >&2
  exit 1
}
