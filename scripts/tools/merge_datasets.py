#!/bin/sh
# The command lines of Megatron-LM's tools/merge_datasets.py, run by merge-datasets(1).
''':'
exec "$(dirname -- "$(readlink -f -- "$0")")/../run" merge-datasets "$@"
'''
import os, sys
os.execv("/bin/sh", ["sh", os.path.abspath(__file__)] + sys.argv[1:])
