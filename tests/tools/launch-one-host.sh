# demo/launch/one-host: a rank is killed, the run continues by itself and ends like an undisturbed
# one.
. "$(dirname "$0")/launch_prelude"
lose_a_rank "$LAUNCH/one-host" --nproc-per-node 2
grep -o 'restart 1 of 10 with 2 ranks' log
grep -cE 'trainer: rank [01] \([^)]*, cpu\): in .*: its connection closed: killed, or crashed' log
same
