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
left
