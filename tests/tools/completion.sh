# Bash completion: a dataset is offered by its prefix, which is what the tools take, with the
# folders on the way to others; sub-commands come first on the line; files elsewhere.
. "$(dirname "$0")/prelude"
mkdir in.sets "in.a folder"
touch in.one.bin in.one.idx "in.a set.idx" in.two.bin in.text in.sets/deep.idx
complete_words() { # program, words of which the last is to be completed
  local name=$1 COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
  . <("$name" --help-completion)
  "_${name//-/_}"
  printf '%s:' "${*:2}"
  printf ' <%s>' "${COMPREPLY[@]}"
  echo
}
complete_words merge-datasets in.
complete_words merge-datasets --output-prefix in.o
complete_words merge-datasets in.sets/
complete_words inspect-dataset ve
complete_words inspect-dataset verify in.a
complete_words bpe-tokenize in.t
complete_words bpe-tokenize in.a
complete_words bpe-tokenize --vocab-file in.a
complete_words bpe-tokenize --input-format l
complete_words bpe-tokenize --shard-t
# A list goes on to the next flag; --flag=value is three words to bash; a number has no names.
complete_words shuffle-index --data-path 0.5 in.one 0.5 in.o
complete_words shuffle-index --data-path 0.5 in.one --seed 1 in.t
complete_words bpe-tokenize --input in.text in.tw
complete_words bpe-tokenize --input-format = l
complete_words bpe-tokenize --input-format =
complete_words bpe-tokenize --workers in.
# A run is a folder or a file of metrics; a dataset beside it is its prefix.
touch in.metrics.jsonl
complete_words report in.
complete_words report in.one in.m
left
