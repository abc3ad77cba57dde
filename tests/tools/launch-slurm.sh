# demo/launch/slurm.sbatch on a private SLURM of two nodes: a task for each node that starts two ranks, and a task for each
# rank; a rank is killed, the job goes back into the queue by itself and ends as one that nobody touched. Skipped where SLURM
# is not installed or does not start.
. "$(dirname "$0")/launch_prelude"
for program in sbatch slurmctld slurmd munged; do
  PATH=$PATH:/usr/sbin command -v $program >/dev/null || { echo "skipped: $program is not installed (slurm-wlm, munge)"; exit 77; }
done
cluster=$GOLDEN/../tools/slurm_cluster
trap '"$cluster" stop "$WORK/slurm"' EXIT
environment=$(NODE_PREFIX=127.0.0. "$cluster" start "$WORK/slurm") || { echo "skipped: SLURM does not start here"; exit 77; }
eval "$environment"
whole
four="--tensor-model-parallel-size 2 --nproc-per-node 2 --train-iters 20"
srun -N2 --ntasks-per-node=1 trainer $FLAGS $four --save "$WORK/four" >four.log 2>&1 || cat four.log
grep -o 'launched by srun: rank 0 of 4, local rank 0 of 2, node 0 of 2; rank 0 at 127.0.0.1' four.log
kill_a_rank >killed &
job=$(sbatch --parsable -N2 --output="$WORK/log" "$LAUNCH/slurm.sbatch" $FLAGS --save "$WORK/ck" --load "$WORK/ck")
for _ in $(seq 300); do
  [ -n "$(squeue -h -j "$job" 2>/dev/null)" ] || break
  sleep 1
done
wait %2 2>/dev/null
cat killed
scontrol -o show job "$job" | grep -o 'JobState=[A-Z]*\|Requeue=1\|Restarts=1\|ExitCode=[0-9:]*' | sort
grep -o 'launched by srun: rank 0 of 2, local rank 0 of 1, node 0 of 2' log
grep -o 'slurm.sbatch: status [0-9]*' log
same
