# demo/launch/slurm.sbatch on a private SLURM of two nodes: a task for each node that starts two
# ranks, and a task for each rank; a rank is killed, the job requeues itself and ends like an
# undisturbed one. Skipped where SLURM is not installed or does not start.
. "$(dirname "$0")/launch_prelude"
export NODE_PREFIX=127.0.0. # the trainer connects to the node that SLURM names
. "$(dirname "$0")/slurm_prelude"
four="--tensor-model-parallel-size 2 --nproc-per-node 2 --train-iters 20"
srun -N2 --ntasks-per-node=1 trainer $FLAGS $four --save "$WORK/four" >four.log 2>&1 || cat four.log
grep -o 'launched by srun: rank 0 of 4, local rank 0 of 2, node 0 of 2; rank 0 at 127.0.0.1' \
  four.log
submit() { # and wait for the job's end
  job=$(sbatch --parsable -N2 --output="$WORK/job.log" "$LAUNCH/slurm.sbatch" "$@")
  for _ in $(seq 300); do
    [ -n "$(squeue -h -j "$job" 2>/dev/null)" ] || return 0
    sleep 1
  done
  return 1
}
lose_a_rank submit
scontrol -o show job "$job" |
  grep -o 'JobState=[A-Z]*\|Requeue=1\|Restarts=1\|ExitCode=[0-9:]*' | sort
grep -o 'launched by srun: rank 0 of 2, local rank 0 of 1, node 0 of 2' job.log
grep -o 'slurm.sbatch: status [0-9]*' job.log
same
