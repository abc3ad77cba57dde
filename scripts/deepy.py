#!/bin/sh
# GPT-NeoX's launcher: deepy.py train.py [-d FOLDER] FILE.... trainer(1) starts its ranks itself.
''':'
case ${1##*/} in
  train.py) shift ;;
  *) echo "deepy.py: ${1:-no script}: permitted is train.py" >&2; exit 2 ;;
esac
exec "$(dirname -- "$(readlink -f -- "$0")")/train.py" "$@"
'''
import os, sys
os.execv("/bin/sh", ["sh", os.path.abspath(__file__)] + sys.argv[1:])
