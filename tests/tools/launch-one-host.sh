# demo/launch/one-host: a rank is killed, the run goes on by itself and ends as one that nobody touched.
. "$(dirname "$0")/launch_prelude"
whole
kill_a_rank >killed &
"$LAUNCH/one-host" $FLAGS --nproc-per-node 2 --save "$WORK/ck" --load "$WORK/ck" >log 2>&1
echo "exit $?"
wait
cat killed
grep -o 'restart 1 of 10 with 2 ranks' log
grep -cE 'trainer: rank [01] \([^)]*, cpu\): in .*: its connection closed: killed, or crashed' log
same
