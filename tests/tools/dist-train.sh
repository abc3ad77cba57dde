# Makefile.dist from text to a transformers folder with a vocabulary that is learned on the way;
# training that stops with status 75 continues by itself and ends in the bytes of an undisturbed
# run; a second make does nothing; an outer make's jobserver bounds all jobs.
. "$(dirname "$0")/dist_prelude"
# As they are, but counted.
for program in wiki-extract bpe-train bpe-tokenize merge-datasets trainer megatron-to-hf; do
  printf '#!/bin/sh\n[ "$1" = --version ] || echo %s >>%s/runs\nexec %s "$@"\n' \
    $program "$WORK" "$(command -v $program)" >bin/$program
  chmod +x bin/$program
done
cp "$GOLDEN/tools/wiki.xml" dump.xml
head -n 50 "$GOLDEN/tools/corpus.jsonl" >lines.jsonl
model="--num-layers 1 --hidden-size 16 --num-attention-heads 2
  --seq-length 16 --max-position-embeddings 16
  --micro-batch-size 2 --train-iters 6 --lr 1e-3 --split 100,0,0 --eval-iters 0 --save-interval 100"
dist() {
  make -s -j2 -f "$dist" BIN="$WORK/bin" INPUT="dump.xml lines.jsonl" SHARDS_PER_FILE=2 \
    VOCAB_SIZE=300 WORK=work "$@" 2>>errors
}
count() { sort runs 2>/dev/null | uniq -c; rm -f runs; }

hf=$(dist TRAIN_FLAGS="$(echo $model)" hf) || cat errors
count
ls "$hf"
dist TRAIN_FLAGS="$(echo $model)" hf >/dev/null && echo "run again:" && count

echo "stopped after every second step:"
stopped=$(dist TRAIN_FLAGS="$(echo $model --exit-interval 2)" hf) || cat errors
count
cmp "$hf/model.safetensors" "$stopped/model.safetensors" && echo "the same model"

echo "not allowed to go on:"
run dist TRAIN_FLAGS="$(echo $model --exit-interval 4)" TRAIN_RESTARTS=0 hf
status_of work | awk '$1 == "model" { $3 = ""; print }'
stopped=$(dist TRAIN_FLAGS="$(echo $model --exit-interval 4)" TRAIN_RESTARTS=0 hf)
count
cmp "$hf/model.safetensors" "$stopped/model.safetensors" && echo "the same model"

# Two pipelines under one make -j2: two programs run at a time, never three. The first two wait
# until both are running.
mkdir at-once
cat >bin/bpe-tokenize <<END
#!/usr/bin/env bash
[ "\$1" != --version ] || exec $(command -v bpe-tokenize) --version
: >$WORK/at-once/\$\$
for _ in \$(seq 3000); do
  now=\$(ls $WORK/at-once | wc -l)
  [ \$now -lt 2 ] || touch $WORK/met
  [ ! -e $WORK/met ] || break
  sleep 0.1
done
sleep 0.2
ls $WORK/at-once | wc -l >>$WORK/counts
$(command -v bpe-tokenize) "\$@"
status=\$?
rm $WORK/at-once/\$\$
exit \$status
END
cat >outer.mk <<END
all: one two
one two: ; +@\$(MAKE) -s -f $dist ${settings[*]} INPUT="dump.xml lines.jsonl" \
SHARDS_PER_FILE=3 WORK=\$@ dataset
END
make -s -j2 -f outer.mk >/dev/null 2>errors || cat errors
grep -i jobserver errors
echo "programs that saw more than two at once: $(awk '$1 > 2' counts | wc -l)," \
  "that saw two: $([ -e met ] && echo some)"
cmp one/dataset-*/corpus_text_document.bin two/dataset-*/corpus_text_document.bin &&
  echo "both the same"
