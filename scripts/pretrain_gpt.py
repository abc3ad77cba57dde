#!/bin/sh
# Megatron-LM's and Megatron-DeepSpeed's command lines, run by trainer(1).
''':'
exec "$(dirname -- "$(readlink -f -- "$0")")/run" trainer "$@"
'''
import os, sys
os.execv("/bin/sh", ["sh", os.path.abspath(__file__)] + sys.argv[1:])
