# demo/launch/torchrun: a rank is killed, torchrun restarts all of them, and the run ends like an
# undisturbed one. Skipped where torchrun is neither on PATH nor named by TORCHRUN.
. "$(dirname "$0")/launch_prelude"
[ -z "${TORCHRUN:-}" ] || PATH=$(dirname "$TORCHRUN"):$PATH
command -v torchrun >/dev/null || {
  echo "skipped: torchrun is not installed" \
    "(PyTorch, 200 MB and more, which no part of the check needs)"
  exit 77
}
RANKS=2 lose_a_rank "$LAUNCH/torchrun"
grep -o 'launched by torchrun: rank 0 of 2, local rank 0 of 2, node 0 of 1' log | uniq -c
same
NODES=2 run "$LAUNCH/torchrun" 2>&1
