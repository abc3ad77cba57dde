# Standard output that cannot be written, under every program and everything that it prints: a full
# disk and a closed descriptor give one line with the reason and status 1; a pipe that nobody reads
# ends the program by SIGPIPE, without a word. The trainer's log is no output in this sense: it
# waits for its disk (RefusedDiskTest).
. "$(dirname "$0")/prelude"
bin=$(dirname "$(command -v trainer)")
B=$GOLDEN/tools
cp "$B/vocab.json" "$B/merges.txt" .
grep text "$B/corpus.jsonl" >docs
bpe-tokenize -q --vocab-file vocab.json --merge-file merges.txt -o d docs --on-error skip 2>errors
G=$GOLDEN/convert/gpt2
megatron-to-hf --quiet --input "$G/v3.pt" --output hf \
  --vocab-file "$G/vocab.json" --merge-file "$G/merges.txt"
mkdir many run
name=a-long-name-so-that-the-list-of-all-is-larger-than-the-buffer-of-standard-output
for i in $(seq 60); do
  for end in idx bin; do ln -s "$PWD/d_text_document.$end" "many/$name-$i.$end"; done
done
for i in 1 2 3; do echo "{\"iteration\": $i, \"lm_loss\": $((6 - i))}"; done >run/metrics.jsonl
files="--vocab-file vocab.json --merge-file merges.txt"
model="--num-layers 1 --hidden-size 32 --num-attention-heads 2 --seq-length 16 --lr 1e-3
  --max-position-embeddings 16 --micro-batch-size 1 --train-iters 1 --vocab-size 300"
parallel="--gpu h100-80gb --world-size 64 --max-global-batch-size 512 --top 40"
mkfifo pipe
exec 4<>pipe 5>pipe 4<&-  # 5 is a pipe's end for writing, and nobody reads it

# What is printed to each of the three; "ok" if all is as above.
check() {
  local said status bad=""
  said=$("$@" 2>&1 >/dev/full </dev/null); status=$?
  [ "$status $said" = "1 $1: standard output: no space left on device" ] || bad=full
  [ $bad ] || { said=$("$@" 2>&1 >&- </dev/null); status=$?; }
  [ "$status $said" = "1 $1: standard output: bad file descriptor" ] || bad=${bad:-closed}
  [ $bad ] || { said=$("$@" 2>&1 >&5 </dev/null); status=$?; }
  [ "$status $said" = "141 " ] || bad=${bad:-pipe}
  if [ $bad ]; then echo "$bad: $*: exit $status: $said"; else echo "ok: $*"; fi |
    sed "s|$GOLDEN|GOLDEN|g" | cut -c -160
}

for path in "$bin"/*; do
  program=${path##*/}
  # bench's own, and the optional one
  case $program in make-dataset | bench-* | parquet-extract) continue ;; esac
  for flag in -h --help --version --help-completion; do check $program $flag; done
done
for program in trainer generate plan-training; do check $program --show-config; done
check bpe-tokenize -q --count $files --on-error skip docs
check json-extract -q docs --on-error skip
check near-dedup -q docs --on-error skip
check wiki-extract -q -o - "$B/wiki.xml"
check merge-datasets -q --dry-run --output-prefix o --input .
check merge-datasets -q --dry-run --output-prefix o --input many
check shuffle-index -q --data-path d_text_document --seq-length 16 --train-iters 2 \
  --global-batch-size 2 --split 100,0,0 --tokenizer-type GPT2BPETokenizer $files
check shuffle-index -q --data-path d_text_document --seq-length 16 --train-iters 2 \
  --global-batch-size 2 --split 100,0,0 --print-descriptions
for command in quick verify stats peek "peek --count 50" "where --document 0"; do
  check inspect-dataset -q $command d_text_document
done
check inspect-dataset -q quick many/*.idx
check report -q run
check report -q d_text_document
check report --plot run
check trainer -q $model --device cpu --data-path d_text_document --dry-run
check plan-training -q $model $parallel
check plan-training -q $model $parallel --json
check plan-training -q $model --gpu h100-80gb --as-given
check generate -q --load hf --prompt it --max-new-tokens 3
check generate -q --load hf --prompt it --max-new-tokens 3 --no-prompt
printf it >prompt
check generate -q --load hf --prompt-file prompt --max-new-tokens 3
if command -v parquet-extract >/dev/null; then
  for flag in -h --help --version --help-completion; do check parquet-extract $flag; done |
    grep -v '^ok:'
  check parquet-extract -q -c text "$GOLDEN/columns/zstd.parquet" | grep -v '^ok:'
fi
exit 0
