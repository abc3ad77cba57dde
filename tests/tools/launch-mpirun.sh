# demo/launch/mpirun: ranks of Open MPI; one is killed, the script restarts the run, and it ends
# like an undisturbed one. Skipped where mpirun is not installed.
. "$(dirname "$0")/launch_prelude"
command -v mpirun >/dev/null || { echo "skipped: mpirun is not installed (openmpi-bin)"; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
RANKS=2 lose_a_rank "$LAUNCH/mpirun"
grep -o 'launched by Open MPI: rank 0 of 2, local rank 0 of 2, node 0 of 1' log | uniq -c
same
