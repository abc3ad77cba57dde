#!/bin/sh
# The command lines of Megatron-LM's tools/preprocess_data.py and its forks', run by
# bpe-tokenize(1).
''':'
exec "$(dirname -- "$(readlink -f -- "$0")")/../run" bpe-tokenize "$@"
'''
import os, sys
os.execv("/bin/sh", ["sh", os.path.abspath(__file__)] + sys.argv[1:])
