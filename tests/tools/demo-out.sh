# demo/run starts over only in a folder that a demo made, and removes only what it makes.
. "$(dirname "$0")/prelude"
mkdir bin
# The demo ends where it would write its first file.
printf '#!/bin/sh\nexit 3\n' >bin/json-extract && chmod +x bin/json-extract
demo() {
  OUT=$1 BIN=$WORK/bin "$GOLDEN/../../demo/run" "${@:2}" 2>&1 >/dev/null | sed "s:$WORK/::g"
  echo "exit ${PIPESTATUS[0]}"
}
whole() { # a folder as a demo leaves it, and one file that is not the demo's
  mkdir -p "$1"/{shards,cache,checkpoints,hf}
  touch "$1"/{.gristmill-demo,corpus.jsonl,vocab.json,merges.txt,corpus_text_document.bin} \
    "$1"/{hf/a,mine,-mine}
}
mkdir theirs empty && touch theirs/hf file
demo "$WORK/theirs" "$WORK/file"
demo "$WORK/file" "$WORK/file"
demo "$WORK/." "$WORK/file"
ls -A theirs file
for name in 'a demo' $'two\nlines' -rf '*'; do
  whole "$WORK/$name"
  demo "$WORK/$name" "$WORK/file"
  (cd "./$name" && find . -mindepth 1 | sort | tr '\n' ' ' && echo)
done
demo "$WORK/empty" "$WORK/file" && ls -A empty
whole "$WORK/again"
demo "$WORK/again" "$WORK/again/corpus.jsonl"
VOCAB_FILE=$WORK/again/vocab.json MERGE_FILE=$WORK/again/merges.txt demo "$WORK/again" "$WORK/file"
ls again
# Relative paths are the caller's: OUT, the programs, the inputs, the vocabulary.
mkdir -p caller && cd caller
printf '#!/bin/sh\nprintf "%%s\\n" "$@" | sed "s:$WORK/::g" >"$WORK/said"; exit 3\n' \
  >../bin/json-extract
OUT=relative BIN=../bin VOCAB_FILE=v MERGE_FILE=m \
  "$GOLDEN/../../demo/run" ../file - >/dev/null || echo "exit $?"
ls -A . relative && cat ../said
