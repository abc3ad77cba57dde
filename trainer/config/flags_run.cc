// The rows that say how a run goes: checkpoints, evaluation, log, stopping, devices. What follows
// from their values is in derive.cc. Names and defaults are Megatron's arguments.py.
// See flags.h.
//
// SPDX-License-Identifier: MIT
#include "tools/cli/fields.h"
#include "trainer/config/flags.h"

namespace trainer {
namespace {

using C = TrainConfig;
using cli::choice;
using cli::integer;
using cli::off;
using cli::on;
using cli::real;
using cli::text;

// 19 years: a clock that counts nanoseconds in 63 bits reaches 292 years.
constexpr double kMostMinutes = 1e7;

// Steps, each a whole number.
cli::Field<C> steps(std::vector<int64_t> C::*member) {
  return {cli::Arity::many,
          [=](C& config, const cli::Values& values) {
            std::vector<int64_t> out;
            for (const std::string& value : values)
              out.push_back(cli::parse_integer(value, 0, cli::kMaxInteger));
            config.*member = std::move(out);
          },
          [=](const C& config) {
            cli::Values out;
            for (const int64_t value : config.*member) out.push_back(std::to_string(value));
            return out;
          }};
}

cli::Group<C> checkpoint_group() {
  return {"Checkpoints",
          {
              {.name = "save",
               .value = "DIR",
               .help = "Where checkpoints go: DIR/iter_0001000.",
               .field = text(&C::save)},
              {.name = "save-interval",
               .aliases = "persistent-save-interval",
               .value = "STEPS",
               .help = "Steps between checkpoints. Default, and 0: one at the end.",
               .field = integer(&C::save_interval, 0)},
              {.name = "extra-save-iters",
               .value = "STEP",
               .help = "Further steps after which a checkpoint is made.",
               .field = steps(&C::extra_save_iters)},
              {.name = "keep-last",
               .value = "N",
               .help = "Checkpoints kept; older ones of this run are removed. Default: all.",
               .field = integer(&C::keep_last, 1)},
              {.name = "load",
               .value = "DIR",
               .help = "Resume from the newest complete checkpoint in DIR; start from the "
                       "beginning if it has none.",
               .field = text(&C::load)},
              {.name = "ckpt-step",
               .value = "STEP",
               .help = "Resume from that step's checkpoint.",
               .field = integer(&C::ckpt_step, 0)},
              {.name = "exit-on-missing-checkpoint",
               .help = "Fail when --load has no checkpoint.",
               .field = on(&C::exit_on_missing_checkpoint)},
              {.name = "pretrained-checkpoint",
               .value = "DIR",
               .help = "Weights to start from when --load has no checkpoint.",
               .field = text(&C::pretrained_checkpoint)},
              {.name = "finetune",
               .help = "Load only the weights: step, optimizer, data position and schedule start "
                       "from the beginning.",
               .field = on(&C::finetune)},
              {.name = "no-load-optim",
               .help = "Do not load the optimizer, nor the schedule's position: both begin anew.",
               .field = on(&C::no_load_optim)},
              {.name = "no-load-rng",
               .help = "Do not load dropout's seed.",
               .field = on(&C::no_load_rng)},
              {.name = "no-save-optim",
               .help = "Write checkpoints without optimizer state.",
               .field = on(&C::no_save_optim)},
              {.name = "no-save-rng",
               .help = "Write checkpoints without generator state.",
               .field = on(&C::no_save_rng)},
              {.name = "override-opt_param-scheduler",
               .aliases = "override-opt-param-scheduler override-lr-scheduler",
               .help = "The command line's schedule overrides the checkpoint's.",
               .field = on(&C::override_opt_param_scheduler)},
              {.name = "use-checkpoint-opt_param-scheduler",
               .aliases = "use-checkpoint-opt-param-scheduler use-checkpoint-lr-scheduler",
               .help = "The checkpoint's schedule overrides the command line's.",
               .field = on(&C::use_checkpoint_opt_param_scheduler)},
              {.name = "use-checkpoint-args",
               .help = "Take the model's shape from the checkpoint.",
               .field = on(&C::use_checkpoint_args)},
              {.name = "no-async-save",
               .help = "Training waits while a checkpoint is written.",
               .field = off(&C::async_save)},
          }};
}

cli::Group<C> report_group() {
  return {
      "Evaluation, log, end",
      {
          {.name = "eval-interval",
           .value = "STEPS",
           .help = "Steps between evaluations.",
           .field = integer(&C::eval_interval, 1)},
          {.name = "eval-iters",
           .value = "BATCHES",
           .help = "Global batches in an evaluation; 0 or -1: none. A resumed run that has used up "
                   "the validation samples begins with the first ones again.",
           .field = integer(&C::eval_iters, -1)},
          {.name = "skip-train",
           .help = "Only evaluate, from the first validation samples on. A --metrics-file gets the "
                   "evaluations' lines.",
           .field = on(&C::skip_train)},
          {.name = "log-interval",
           .value = "STEPS",
           .help = "Steps between iteration lines.",
           .field = integer(&C::log_interval, 1)},
          {.name = "log-throughput",
           .help = "The iteration line has TFLOP/s.",
           .field = on(&C::log_throughput)},
          {.name = "log-params-norm",
           .help = "The iteration line has the norm of the parameters.",
           .field = on(&C::log_params_norm)},
          {.name = "log-num-zeros-in-grad",
           .help = "The iteration line counts zero gradients.",
           .field = on(&C::log_num_zeros_in_grad)},
          {.name = "plot",
           .help = "Draw the loss as a curve below the log. Where stderr is no terminal, or one "
                   "that cannot erase lines, the curve is printed once, at the end.",
           .field = on(&C::plot)},
          {.name = "plot-ascii",
           .help = "The same in ASCII characters.",
           .field = on(&C::plot_ascii)},
          {.name = "metrics-file",
           .value = "FILE",
           .help = "One JSON line for each iteration line. Default: metrics.jsonl beside the "
                   "checkpoints.",
           .field = text(&C::metrics_file)},
          {.name = "tensorboard-dir",
           .value = "DIR",
           .help = "TensorBoard event files.",
           .field = text(&C::tensorboard_dir)},
          {.name = "tensorboard-log-interval",
           .value = "STEPS",
           .help = "Steps between TensorBoard points.",
           .field = integer(&C::tensorboard_log_interval, 1)},
          {.name = "log-timers-to-tensorboard",
           .help = "Also iteration-time and throughput.",
           .field = on(&C::log_timers_to_tensorboard)},
          {.name = "log-validation-ppl-to-tensorboard",
           .help = "Also validation perplexity.",
           .field = on(&C::log_validation_ppl_to_tensorboard)},
          {.name = "log-world-size-to-tensorboard",
           .help = "Also the number of processes.",
           .field = on(&C::log_world_size_to_tensorboard)},
          {.name = "no-log-loss-scale-to-tensorboard",
           .help = "No loss scale in TensorBoard.",
           .field = off(&C::log_loss_scale_to_tensorboard)},
          {.name = "exit-interval",
           .value = "STEPS",
           .help = "Save and end, as at SIGTERM, after a step that is a multiple of it. Without "
                   "--save: end, with status 0. 0: never.",
           .field = integer(&C::exit_interval, 0)},
          {.name = "exit-duration-in-mins",
           .value = "MINUTES",
           .help =
               "Save and end, as at SIGTERM, after this time; restarts do not begin it anew. 0: "
               "never.",
           .field = real(&C::exit_duration_in_mins, 0)},
          {.name = "stop-file",
           .aliases = "kill-switch-path kill-switch-file",
           .value = "FILE",
           .help = "Save and end, as at SIGTERM, when FILE appears.",
           .field = text(&C::stop_file)},
      }};
}

cli::Group<C> device_group() {
  return {
      "Devices",
      {
          {.name = "device",
           .value = "KIND",
           .help = "auto uses a GPU if there is one.",
           .field = choice(&C::device, {"auto", "cpu", "cuda"})},
          {.name = "cpu-threads",
           .value = "N",
           .help = "Threads of the CPU device; results do not depend on it. Default: all.",
           .field = integer(&C::cpu_threads, 1, 4096)},
          {.name = "distributed-backend",
           .value = "NAME",
           .help = "How processes communicate.",
           .field = choice(&C::distributed_backend, {"nccl", "gloo"})},
          {.name = "nproc-per-node",
           .aliases = "nproc_per_node",
           .value = "N",
           .help = "Processes to start on this host.",
           .field = integer(&C::nproc_per_node, 1, 1 << 16)},
          {.name = "nnodes",
           .value = "N",
           .help = "Number of hosts, if no launcher gives it: run the same command on each, with "
                   "--node-rank and --master-addr, as with torchrun.",
           .field = integer(&C::nnodes, 1, 1 << 16)},
          {.name = "node-rank",
           .aliases = "node_rank",
           .value = "N",
           .help = "With --nnodes: this host's number, from 0.",
           .field = integer(&C::node_rank, 0, 1 << 16)},
          {.name = "master-addr",
           .aliases = "master_addr",
           .value = "HOST",
           .help = "With --nnodes: the address of host 0.",
           .field = text(&C::master_addr)},
          {.name = "master-port",
           .aliases = "master_port",
           .value = "PORT",
           .help =
               "With --nnodes: the port on which ranks meet, or the next free one. Default: 29500.",
           .field = integer(&C::master_port, 1, 65535)},
          {.name = "tensor-model-parallel-size",
           .aliases = "model-parallel-size",
           .value = "TP",
           .help = "Devices that share each layer.",
           .field = integer(&C::tensor_model_parallel_size, 1, 1 << 16)},
          {.name = "sequence-parallel",
           .help = "They also divide the norms, by sequence position.",
           .field = on(&C::sequence_parallel)},
          {.name = "pipeline-model-parallel-size",
           .value = "PP",
           .help = "Stages into which the layers are divided.",
           .field = integer(&C::pipeline_model_parallel_size, 1, 1 << 16)},
          {.name = "num-layers-per-virtual-pipeline-stage",
           .value = "L",
           .help = "Interleaved schedule: several chunks of L layers on each rank.",
           .field = integer(&C::num_layers_per_virtual_pipeline_stage, 1, 4096)},
          {.name = "num-virtual-stages-per-pipeline-rank",
           .value = "N",
           .help = "The same, by number: N chunks on each rank.",
           .field = integer(&C::num_virtual_stages_per_pipeline_rank, 1, 4096)},
          {.name = "account-for-embedding-in-pipeline-split",
           .help = "The embedding counts as a layer of the first stage.",
           .field = on(&C::account_for_embedding_in_pipeline_split)},
          {.name = "account-for-loss-in-pipeline-split",
           .help = "The vocabulary head counts as a layer of the last stage.",
           .field = on(&C::account_for_loss_in_pipeline_split)},
          {.name = "decoder-first-pipeline-num-layers",
           .value = "L",
           .help = "Layers of the first stage. Default: balanced for the vocabulary head.",
           .field = integer(&C::decoder_first_pipeline_num_layers, 1, 4096)},
          {.name = "decoder-last-pipeline-num-layers",
           .value = "L",
           .help = "Layers of the last stage.",
           .field = integer(&C::decoder_last_pipeline_num_layers, 1, 4096)},
          {.name = "pipeline-schedule",
           .value = "NAME",
           .help = "Order of a step's forwards and backwards. Default: 1f1b, or interleaved "
                   "with chunks.",
           .field = choice(&C::pipeline_schedule, {"1f1b", "interleaved", "zero-bubble"})},
          {.name = "enable-zbh1-pipeline",
           .help = "Same as --pipeline-schedule zero-bubble.",
           .field = {cli::Arity::none,
                     [](C& c, const cli::Values& v) {
                       if (cli::parse_bool(v[0])) c.pipeline_schedule = "zero-bubble";
                     },
                     nullptr},
           .sets = "pipeline-schedule"},
          {.name = "context-parallel-size",
           .value = "CP",
           .help = "Devices that share each sequence.",
           .field = integer(&C::context_parallel_size, 1, 1 << 16)},
          {.name = "expert-model-parallel-size",
           .value = "EP",
           .help = "For mixtures of experts.",
           .field = integer(&C::expert_model_parallel_size, 1, 1 << 16)},
          {.name = "num-experts",
           .value = "E",
           .help = "Experts in a layer.",
           .field = integer(&C::num_experts, 1, 1 << 20)},
          {.name = "use-distributed-optimizer",
           .help = "Data-parallel ranks divide the optimizer's state (like --zero-stage 1).",
           .field = on(&C::use_distributed_optimizer)},
          {.name = "zero-stage",
           .value = "STAGE",
           .help =
               "What data-parallel ranks divide: 1 optimizer, 2 also gradients, 3 also parameters.",
           .field = integer(&C::zero_stage, 0, 3)},
          {.name = "overlap-grad-reduce",
           .help = "Reduce gradients during backward.",
           .field = on(&C::overlap_grad_reduce)},
          {.name = "overlap-param-gather",
           .help = "Gather parameters during forward.",
           .field = on(&C::overlap_param_gather)},
          {.name = "no-copy-engines",
           .help = "NCCL makes all transfers. Default: where NVLink connects a host's GPUs, and "
                   "data-parallel ranks communicate while they compute, copy engines make their "
                   "large transfers; products then keep all multiprocessors.",
           .field = on(&C::no_copy_engines)},
          {.name = "distributed-timeout-minutes",
           .value = "MINUTES",
           .help = "How long ranks wait for each other at the start.",
           .field = real(&C::distributed_timeout_minutes, 0, kMostMinutes)},
          {.name = "meeting-timeout-seconds",
           .value = "SECONDS",
           .help = "How long rank 0 waits at the start for the next rank of the hosts that have "
                   "connected. For a host that has sent no rank yet it waits "
                   "--distributed-timeout-minutes.",
           .field = real(&C::meeting_timeout_seconds, 0, 60 * kMostMinutes)},
          {.name = "hang-timeout-seconds",
           .value = "SECONDS",
           .help = "Silence after which a rank is treated as lost. A run without progress ends "
                   "after this time too, or four times its longest pause.",
           .field = real(&C::hang_timeout_seconds, 0, 60 * kMostMinutes)},
          {.name = "max-restarts",
           .value = "N",
           .help = "How often processes started here restart by themselves from the last "
                   "checkpoint after one was lost, with no newer checkpoint between two restarts. "
                   "With several hosts all restart together, and --save and --load must be one "
                   "folder that all share.",
           .field = integer(&C::max_restarts, 0, 1 << 20)},
          {.name = "rejoin-timeout-minutes",
           .value = "MINUTES",
           .help = "With --max-restarts and several hosts: how long a restart waits for a host "
                   "that is gone to come back.",
           .field = real(&C::rejoin_timeout_minutes, 0, kMostMinutes)},
          {.name = "in-memory-checkpoint",
           .value = "STEPS",
           .help = "With --max-restarts: steps between checkpoints in the memory of this host, "
                   "which outlive the ranks; with several hosts, in that of the next one, too. A "
                   "restart continues from the newest one, in memory or on disk.",
           .field = integer(&C::in_memory_checkpoint, 1)},
          {.name = "allow-fewer-devices",
           .help = "With --max-restarts: continue without a device that is lost for good, if the "
                   "layout and the batch fit the others.",
           .field = on(&C::allow_fewer_devices)},
          {.name = "rendezvous",
           .value = "PLACE",
           .help = "Where ranks meet if the launcher does not say: HOST:PORT of rank 0, or "
                   "file:PATH that all hosts share.",
           .field = text(&C::rendezvous)},
          {.name = "job-secret-file",
           .value = "FILE",
           .help = "File with the secret that ranks must know to take part; only its owner may "
                   "have access.",
           .field = text(&C::job_secret_file)},
          {.name = "auto-layout",
           .help = "Choose micro-batch size, tensor, pipeline and data parallelism, ZeRO stage, "
                   "overlap, recomputation and offload, except those that a flag sets, for the "
                   "best layout that fits, as plan-training orders them. A resumed run keeps its "
                   "choice.",
           .field = on(&C::auto_layout)},
          {.name = "new-layout",
           .help = "With a chosen layout: choose again instead of using the choice of the "
                   "checkpoint, or of the run that wrote the --config file.",
           .field = on(&C::new_layout)},
          {.name = "chosen-flags",
           .value = "NAME",
           .help = "Written into config.toml beside a chosen layout: the flags that the choice "
                   "set, which --new-layout sets anew.",
           .field = cli::last_list(&C::chosen_flags)},
          {.name = "cuda-graph",
           .value = "0|1",
           .help = "Replay the step as a CUDA graph. Default: 1 on a GPU.",
           .field = integer(&C::cuda_graph, 0, 1)},
      }};
}

// An empty variable in a script must not plan for another device.
cli::Field<C> card_name() {
  cli::Field<C> field = text(&C::gpu);
  field.set = [](C& config, const cli::Values& values) {
    if (values[0].empty()) throw cli::UsageError("expected the name of a card");
    config.gpu = values[0];
  };
  return field;
}

// GPT-NeoX's files of --config (cli::Program::yaml_flag). A saved configuration has their values,
// not the files.
cli::Field<C> neox_files() {
  cli::Field<C> field = cli::last_list(&C::neox_config);
  field.show = nullptr;
  return field;
}

cli::Group<C> command_group() {
  return {
      "The command",
      {
          {.name = "deepspeed_config",
           .aliases = "deepspeed-config",
           .value = "FILE",
           .help = "DeepSpeed's JSON: batch sizes, precision, clipping, ZeRO stage, offload.",
           .field = text(&C::deepspeed_config)},
          {.name = "neox-config",
           .value = "FILE",
           .help = "GPT-NeoX's configurations, read as one: what --config does with files that end "
                   "in .yml or .yaml.",
           .field = neox_files()},
          {.name = "dry-run",
           .help = "Print parameters, memory plan and estimated time, and end.",
           .field = on(&C::dry_run)},
          {.name = "schedule-svg",
           .value = "FILE",
           .help = "With --dry-run: draw what each pipeline stage computes in a step, as if a "
                   "backward took twice a forward's time and messages none.",
           .field = text(&C::schedule_svg)},
          {.name = "gpu",
           .value = "NAME|FILE",
           .help =
               "With --dry-run or a chosen layout: plan for this card, which need not be in this "
               "machine, such as a100-40gb, l40s, rtx4090, h200, b200, or for the table that "
               "plan-training --calibrate has written. An unknown name lists the known "
               "ones.",
           .field = card_name()},
          {.name = "network-gb-per-s",
           .value = "RATE",
           .help = "Bandwidth of a host's network in one direction, in 10^9 bytes per second, for "
                   "the same. Default: from the card's table.",
           .field = real(&C::network_gb_per_s, 1e-6, 1e5)},
      }};
}

}  // namespace

cli::Table<TrainConfig> run_flags() {
  return {checkpoint_group(), report_group(), device_group(), command_group()};
}

}  // namespace trainer
