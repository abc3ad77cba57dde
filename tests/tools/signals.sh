# Signals that end a program, also SLURM's and a limit's: the signal's own status, no file left.
# SIGPIPE: like any filter. SIGKILL and the same command again: the same bytes, and the killed
# run's leftovers are removed.
. "$(dirname "$0")/prelude"
mkfifo in.fifo
for signal in INT TERM HUP QUIT USR1 XCPU; do
  for tool in "json-extract -o out.jsonl" "bpe-tokenize -o out $VOCAB"; do
    # A shell makes background jobs ignore SIGINT and SIGQUIT; env puts the default back.
    env --default-signal=INT,QUIT $tool -w 2 in.fifo &
    pid=$!
    exec 3>in.fifo
    echo '{"text":"some"}' >&3
    await '\.tmp$'
    kill -$signal $pid
    wait $pid
    echo "exit $?"
    exec 3>&-
    left
  done
done 2>/dev/null
yes '{"text":"some"}' | head -n 200000 >in.jsonl
json-extract -q in.jsonl | head -n 1
echo "exit ${PIPESTATUS[0]}"
for tool in "json-extract -q -o out.jsonl" "bpe-tokenize -q -o out $VOCAB"; do
  $tool -w 2 <in.fifo &
  pid=$!
  exec 3>in.fifo
  cat in.jsonl >&3
  await '\.tmp$'
  kill -9 $pid
  exec 3>&-
  wait
  $tool -w 2 <in.jsonl
  left
done 2>/dev/null
