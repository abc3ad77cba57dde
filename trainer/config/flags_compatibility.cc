// Flags that tutorials' command lines carry and that change nothing here, each with the reason that
// is printed once. A flag that would change the model or the data is never in this file. See
// flags.h.
//
// SPDX-License-Identifier: MIT
#include <initializer_list>
#include <iterator>

#include "tools/cli/fields.h"
#include "tools/cli/parse.h"
#include "trainer/config/flags.h"

namespace trainer {
namespace {

using C = TrainConfig;
using cli::Arity;

// `names` as rows of one arity and one reason.
void add(cli::Group<C>& group, Arity arity, std::string_view reason,
         std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    group.flags.push_back({.name = name,
                           .value = arity == Arity::none ? "" : "VALUE",
                           .help = "Taken for the sake of known command lines; changes nothing.",
                           .field = cli::no_effect<C>(arity, std::string(reason))});
  }
}

}  // namespace

cli::Table<TrainConfig> compatibility_flags() {
  cli::Group<C> group{"Without effect here", {}};
  add(group, Arity::none, "every operation is as fused as the device wants it",
      {"no-masked-softmax-fusion", "no-bias-swiglu-fusion", "no-bias-dropout-fusion",
       "no-rope-fusion", "no-gradient-accumulation-fusion", "no-persist-layer-norm",
       "no-scaled-masked-softmax-fusion", "cross-entropy-loss-fusion",
       "scaled-upper-triang-masked-softmax-fusion", "scaled-masked-softmax-fusion",
       "bias-gelu-fusion", "bias-dropout-fusion", "memory-centric-tiled-linear",
       "use-fused-rmsnorm", "enable-cuda-graph", "external-cuda-graph",
       "no-check-for-nan-in-loss-and-grad", "check-for-nan-in-loss-and-grad", "te-rng-tracker"});
  add(group, Arity::none, "attention is always the fused kind",
      {"use-flash-attn", "use-flash-attn-v2", "use-flash-attn-triton", "use-flash-attn-builder",
       "use-fused-attention"});
  add(group, Arity::one, "attention is always the fused kind", {"attention-backend"});
  add(group, Arity::none, "softmax and all sums are computed in fp32",
      {"attention-softmax-in-fp32", "apply-query-key-layer-scaling", "no-query-key-layer-scaling",
       "fp16-lm-cross-entropy", "fp32-residual-connection"});
  add(group, Arity::none, "there is one implementation of the model",
      {"use-mcore-models", "use-legacy-models", "use-cpu-initialization", "deepspeed",
       "no-pipeline-parallel", "use-te", "use-dist-ckpt", "ckpt-fully-parallel-save",
       "ckpt-fully-parallel-load", "async-save", "ckpt-assume-constant-structure",
       "use-persistent-ckpt-worker", "auto-detect-ckpt-format", "ds-inference",
       "create-moe-param-group", "mos", "kd"});
  add(group, Arity::one, "there is one implementation of the model",
      {"transformer-impl", "ckpt-format", "dist-ckpt-format", "dist-ckpt-strictness", "spec",
       "ckpt-convert-format", "DDP-impl", "model-type", "train-mode", "task", "dataset",
       "patch-tokenizer-type", "max-padding-length", "export-te-mcore-model"});
  add(group, Arity::none, "communication is arranged by the trainer itself",
      {"no-async-tensor-model-parallel-allreduce",
       "distribute-saved-activations",
       "distribute-checkpointed-activations",
       "no-scatter-gather-tensors-in-pipeline",
       "use-contiguous-buffers-in-local-ddp",
       "no-contiguous-buffers-in-local-ddp",
       "tp-comm-overlap",
       "overlap-p2p-communication",
       "no-overlap-p2p-communication",
       "delay-grad-reduce",
       "no-delay-grad-reduce",
       "align-grad-reduce",
       "defer-embedding-wgrad-compute",
       "use-ring-exchange-p2p",
       "nccl-ub",
       "disable-gloo-process-groups",
       "tp-comm-overlap-ag",
       "tp-comm-overlap-rs",
       "tp-comm-overlap-rs-dgrad",
       "disable-tp-comm-split-ag",
       "disable-tp-comm-split-rs"});
  add(group, Arity::one, "communication is arranged by the trainer itself",
      {"ddp-bucket-size", "ddp-num-buckets", "zero-reduce-bucket-size", "remote-device",
       "zero-contiguous-gradients", "zero-allgather-bucket-size", "nccl-communicator-config-path",
       "local_rank", "local-rank", "tp-comm-overlap-cfg"});
  add(group, Arity::one, "samples are read straight from the mapped files",
      {"num-workers", "num-dataset-builder-threads", "data-sharding"});
  add(group, Arity::none, "samples are read straight from the mapped files",
      {"mmap-warmup", "no-mmap-bin-files", "no-data-sharding",
       "no-create-attention-mask-in-dataloader", "create-attention-mask-in-dataloader"});
  add(group, Arity::one, "the log is written at every --log-interval",
      {"timing-log-level", "timing-log-option", "tensorboard-queue-size", "log-memory-interval",
       "empty-unused-memory-level", "manual-gc-interval", "logging-level", "train-sync-interval",
       "log-straggler-interval", "steps-per-print"});
  add(group, Arity::none, "the log is written at every --log-interval",
      {"log-batch-size-to-tensorboard", "log-learning-rate-to-tensorboard",
       "no-log-learnig-rate-to-tensorboard", "log-optimizer-states-to-tensorboard", "log-progress",
       "log-straggler", "manual-gc", "no-manual-gc-eval", "barrier-with-L1-time",
       "no-barrier-with-level-1-timing", "no-one-logger", "enable-one-logger",
       "wall-clock-breakdown", "memory-breakdown"});
  add(group, Arity::one, "metrics go to metrics.jsonl and TensorBoard",
      {"wandb-project", "wandb-exp-name", "wandb-save-dir", "wandb-entity", "one-logger-project",
       "one-logger-run-name", "one-logger-entity", "app-tag-run-name", "app-tag-run-version"});
  add(group, Arity::none, "memory is fixed before the first step, and --dry-run prints it",
      {"log-memory-to-tensorboard"});
  add(group, Arity::none, "signals always end in a checkpoint", {"exit-signal-handler"});
  add(group, Arity::one, "signals always end in a checkpoint", {"exit-signal"});
  add(group, Arity::none, "gradients are always checked before they are applied",
      {"check-for-spiky-loss", "check-for-large-grads"});
  add(group, Arity::one, "gradients are always checked before they are applied", {"rerun-mode"});
  add(group, Arity::none, "the cluster's own resuming is used", {"adlr-autoresume"});
  add(group, Arity::one, "the cluster's own resuming is used", {"adlr-autoresume-interval"});
  return {group};
}

const cli::Table<TrainConfig>& flag_table() {
  static const cli::Table<TrainConfig> table = [] {
    cli::Table<TrainConfig> all;
    for (cli::Table<TrainConfig> part :
         {model_flags(), learning_flags(), run_flags(), compatibility_flags()}) {
      std::move(part.begin(), part.end(), std::back_inserter(all));
    }
    return all;
  }();
  return table;
}

std::map<std::string, std::vector<std::string>> flag_values(const TrainConfig& config) {
  TrainConfig copy = config;
  std::map<std::string, std::vector<std::string>> out;
  for (const cli::Row& row : cli::bind_rows(flag_table(), copy)) {
    if (!row.show) continue;
    cli::Values values = row.show();
    if (!values.empty()) out[std::string(row.name)] = std::move(values);
  }
  return out;
}

std::string effective_config(const TrainConfig& config) {
  TrainConfig copy = config;
  const std::vector<cli::Row> rows = cli::bind_rows(flag_table(), copy);
  return cli::show_config(rows);
}

}  // namespace trainer
