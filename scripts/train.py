#!/bin/sh
# GPT-NeoX's command lines, train.py [-d FOLDER] FILE..., run by trainer(1) as
# --config FOLDER/FILE.yml...
''':'
folder=
words=$#
while [ "$words" -gt 0 ]; do
  word=$1
  shift; words=$((words - 1))
  case $word in
    -d | --conf_dir) [ "$words" -gt 0 ] || { echo "train.py: $word names no folder" >&2; exit 2; }
      folder=${1%/}/; shift; words=$((words - 1)) ;;
    --conf_dir=*) folder=${word#*=}; folder=${folder%/}/ ;;
    --local_rank=* | --local-rank=*) ;; # a launcher says it also in the environment
    -*) echo "train.py: $word: permitted are -d FOLDER and names of configurations" >&2; exit 2 ;;
    *.yml | *.yaml | *.json) set -- "$@" "$word" ;;
    *) set -- "$@" "$word.yml" ;;
  esac
done
[ $# -gt 0 ] || { echo "train.py: no configuration: train.py [-d FOLDER] FILE..." >&2; exit 2; }
for file in "$@"; do
  shift
  set -- "$@" "$folder$file"
done
exec "$(dirname -- "$(readlink -f -- "$0")")/run" trainer --config "$@"
'''
import os, sys
os.execv("/bin/sh", ["sh", os.path.abspath(__file__)] + sys.argv[1:])
