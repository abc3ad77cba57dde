// The rows that say how the model learns: batches, length, learning rate, AdamW, Muon, precision,
// memory.
// What follows from their values is in derive.cc. Names and defaults are Megatron's arguments.py.
// See flags.h.
//
// SPDX-License-Identifier: MIT
#include "tools/cli/fields.h"
#include "trainer/config/flags.h"

namespace trainer {
namespace {

using C = TrainConfig;
using cli::Arity;
using cli::choice;
using cli::integer;
using cli::last_list;
using cli::off;
using cli::on;
using cli::real;

cli::Group<C> batch_group() {
  return {
      "Batches and length",
      {
          {.name = "micro-batch-size",
           .aliases = "batch-size",
           .value = "B",
           .help = "Samples in one forward pass on a device.",
           .field = integer(&C::micro_batch_size, 1, 1 << 20)},
          {.name = "global-batch-size",
           .value = "SAMPLES",
           .help = "Samples in a step. Default: micro-batch size times data-parallel size.",
           .field = integer(&C::global_batch_size, 1, 1 << 28)},
          {.name = "max-global-batch-size",
           .value = "SAMPLES",
           .help = "Choose the layout (what --auto-layout chooses) and a global batch of at most "
                   "SAMPLES: the best of the largest of each micro-batch size.",
           .field = integer(&C::max_global_batch_size, 1, 1 << 28)},
          {.name = "rampup-batch-size",
           .value = "START INCREMENT SAMPLES",
           .help = "The global batch grows from START by INCREMENT over that many samples.",
           .field = last_list(&C::rampup_batch_size)},
          {.name = "train-iters",
           .value = "STEPS",
           .help = "Steps of the whole run.",
           .field = integer(&C::train_iters, 0)},
          {.name = "train-samples",
           .value = "SAMPLES",
           .help = "Samples of the whole run, instead of --train-iters.",
           .field = integer(&C::train_samples, 0)},
          {.name = "train-tokens",
           .value = "TOKENS",
           .help = "Tokens after which to stop, with or without --train-samples.",
           .field = integer(&C::train_tokens, 1)},
          {.name = "seed",
           .value = "SEED",
           .help = "Seed of weights, dropout and sample order.",
           .field = integer(&C::seed, 0, 0xffffffff)},
      }};
}

cli::Group<C> rate_group() {
  return {"Learning rate and optimizer",
          {
              {.name = "lr",
               .value = "RATE",
               .help = "Highest learning rate.",
               .field = real(&C::lr, 0)},
              {.name = "min-lr",
               .value = "RATE",
               .help = "Lowest learning rate.",
               .field = real(&C::min_lr, 0)},
              {.name = "lr-decay-style",
               .value = "STYLE",
               .help = "Shape of the decay. linear-to-zero falls to 0 and stays at --min-lr once "
                       "it is there, as GPT-NeoX's linear does.",
               .field = choice(&C::lr_decay_style, {"constant", "linear", "linear-to-zero",
                                                    "cosine", "inverse-square-root", "WSD"})},
              {.name = "lr-decay-iters",
               .value = "STEPS",
               .help = "Steps until the lowest rate. Default: the whole run.",
               .field = integer(&C::lr_decay_iters, 1)},
              {.name = "lr-decay-samples",
               .value = "SAMPLES",
               .help = "The same in samples.",
               .field = integer(&C::lr_decay_samples, 1)},
              {.name = "lr-decay-tokens",
               .value = "TOKENS",
               .help = "The same in tokens.",
               .field = integer(&C::lr_decay_tokens, 1)},
              {.name = "lr-wsd-decay-style",
               .value = "STYLE",
               .help = "Shape of the last part of WSD.",
               .field = choice(&C::lr_wsd_decay_style,
                               {"exponential", "linear", "cosine", "minus_sqrt"})},
              {.name = "lr-wsd-decay-iters",
               .value = "STEPS",
               .help = "Length of that part.",
               .field = integer(&C::lr_wsd_decay_iters, 1)},
              {.name = "lr-wsd-decay-samples",
               .value = "SAMPLES",
               .help = "The same in samples.",
               .field = integer(&C::lr_wsd_decay_samples, 1)},
              {.name = "lr-warmup-fraction",
               .aliases = "warmup",
               .value = "SHARE",
               .help = "Warm-up as a share of the decay's length.",
               .field = real(&C::lr_warmup_fraction, 0, 1)},
              {.name = "lr-warmup-iters",
               .aliases = "warmup-iters",
               .value = "STEPS",
               .help = "Steps of linear warm-up.",
               .field = integer(&C::lr_warmup_iters, 0)},
              {.name = "lr-warmup-samples",
               .value = "SAMPLES",
               .help = "The same in samples.",
               .field = integer(&C::lr_warmup_samples, 0)},
              {.name = "lr-warmup-tokens",
               .value = "TOKENS",
               .help = "The same in tokens.",
               .field = integer(&C::lr_warmup_tokens, 0)},
              {.name = "lr-warmup-init",
               .value = "RATE",
               .help = "Rate at the start of warm-up.",
               .field = real(&C::lr_warmup_init, 0)},
              {.name = "optimizer",
               .value = "NAME",
               .help = "AdamW under either of its names, or Muon for the layers' matrices and "
                       "AdamW for the rest; dist_muon is muon with --use-distributed-optimizer.",
               .field = choice(&C::optimizer, {"adam", "adamw", "muon", "dist_muon"})},
              {.name = "weight-decay",
               .value = "RATE",
               .help = "Weight decay of matrices; vectors have none.",
               .field = real(&C::weight_decay, 0)},
              {.name = "start-weight-decay",
               .value = "RATE",
               .help = "Weight decay at the start.",
               .field = real(&C::start_weight_decay, 0)},
              {.name = "end-weight-decay",
               .value = "RATE",
               .help = "Weight decay at the end.",
               .field = real(&C::end_weight_decay, 0)},
              {.name = "weight-decay-incr-style",
               .value = "STYLE",
               .help = "How it changes between the two.",
               .field = choice(&C::weight_decay_incr_style, {"constant", "linear", "cosine"})},
              {.name = "adam-beta1",
               .value = "B",
               .help = "Decay of AdamW's first moment.",
               .field = real(&C::adam_beta1, 0, 0.9999999)},
              {.name = "adam-beta2",
               .value = "B",
               .help = "Decay of AdamW's second moment.",
               .field = real(&C::adam_beta2, 0, 0.9999999)},
              {.name = "adam-eps",
               .value = "EPS",
               .help = "Added to the root of the second moment.",
               .field = real(&C::adam_eps, 0)},
              {.name = "clip-grad",
               .value = "NORM",
               .help = "Largest gradient norm; 0 for none.",
               .field = real(&C::clip_grad, 0)},
          }};
}

/// A word that the field accepts, or refuses with a reason.
cli::Field<C> word_or_reason(std::string C::*member, std::vector<std::string> choices,
                             std::string reason) {
  cli::Field<C> field = choice(member, choices);
  field.set = [=](C& c, const cli::Values& v) {
    cli::check_idle_choice(v[0], choices, reason);
    c.*member = v[0];
  };
  return field;
}

cli::Group<C> muon_group() {
  return {
      "Muon, with --optimizer muon",
      {
          {.name = "muon-momentum",
           .value = "B",
           .help = "Share of the old momentum that a step keeps.",
           .field = real(&C::muon_momentum, 0, 0.9999999)},
          {.name = "muon-nesterov",
           .aliases = "muon-use-nesterov",
           .help = "Use Nesterov momentum.",
           .field = on(&C::muon_nesterov)},
          {.name = "muon-no-split-qkv",
           .help = "Update queries, keys and values as one matrix instead of three.",
           .field = off(&C::muon_split_qkv)},
          {.name = "muon-coefficient-type",
           .value = "NAME",
           .help = "Coefficients of the Newton-Schulz iteration.",
           .field = choice(&C::muon_coefficient_type,
                           {"simple", "quintic", "polar_express", "cans", "aol"})},
          {.name = "muon-num-ns-steps",
           .value = "STEPS",
           .help = "Steps of the Newton-Schulz iteration.",
           .field = integer(&C::muon_num_ns_steps, 1, 99)},
          {.name = "muon-scale-mode",
           .value = "MODE",
           .help = "Factor of the step of an (out, in) matrix: sqrt(max(out, in)), "
                   "sqrt(out / in), or sqrt(max(1, out / in)).",
           .field = choice(&C::muon_scale_mode, {"spectral", "unit_rms_norm", "shape_scaling"})},
          {.name = "muon-extra-scale-factor",
           .value = "FACTOR",
           .help = "A further factor; 0.2 with spectral makes steps as large as AdamW's.",
           .field = real(&C::muon_extra_scale_factor, 0)},
          {.name = "muon-fp32-matmul-prec",
           .value = "PRECISION",
           .help = "Precision of the iteration's matrix products: medium is bf16, the others "
                   "are fp32.",
           .field = word_or_reason(&C::muon_fp32_matmul_prec, {"medium", "high", "highest"},
                                   "PyTorch has no other precision")},
          {.name = "muon-tp-mode",
           .value = "MODE",
           .help = "How a matrix that is divided among tensor-parallel ranks is updated: each rank "
                   "treats its part as a whole matrix, or each computes the whole matrix, or all "
                   "compute it together.",
           .field = choice(&C::muon_tp_mode, {"blockwise", "duplicated", "distributed"})},
          {.name = "muon-scalar-optimizer",
           .value = "NAME",
           .help = "Optimizer of all other parameters.",
           .field = word_or_reason(&C::muon_scalar_optimizer, {"adam"},
                                   "parameters other than matrices have AdamW here")},
      }};
}

constexpr double kMostLossScale = 1e30;   // an fp32 number.
constexpr double kLeastLossScale = 1e-6;  // gradients are divided by it.

// 0 is no fixed scale, as in Megatron, whose scripts say so.
cli::Field<C> fixed_loss_scale() {
  return {Arity::one,
          [](C& c, const cli::Values& v) {
            c.loss_scale.reset();
            if (cli::parse_real(v[0], 0, kMostLossScale) != 0)
              c.loss_scale = cli::parse_real(v[0], kLeastLossScale, kMostLossScale);
          },
          [](const C& c) {
            return c.loss_scale ? cli::Values{cli::show_real(*c.loss_scale)} : cli::Values{};
          }};
}

cli::Group<C> precision_group() {
  return {
      "Precision and memory",
      {
          {.name = "fp16",
           .help = "Compute in fp16 with dynamic loss scaling.",
           .field = on(&C::fp16)},
          {.name = "bf16",
           .help = "Compute in bf16 with fp32 main parameters.",
           .field = on(&C::bf16)},
          {.name = "loss-scale",
           .value = "SCALE",
           .help = "Fixed loss scale for fp16; 0 is dynamic. Default: dynamic.",
           .field = fixed_loss_scale()},
          {.name = "initial-loss-scale",
           .value = "SCALE",
           .help = "Initial dynamic scale.",
           .field = real(&C::initial_loss_scale, kLeastLossScale, kMostLossScale)},
          {.name = "min-loss-scale",
           .value = "SCALE",
           .help = "Smallest dynamic scale.",
           .field = real(&C::min_loss_scale, kLeastLossScale, kMostLossScale)},
          {.name = "loss-scale-window",
           .value = "STEPS",
           .help = "Number of good steps after which the scale doubles.",
           .field = integer(&C::loss_scale_window, 1, 1 << 30)},
          {.name = "hysteresis",
           .value = "STEPS",
           .help = "Number of bad steps before the scale is halved.",
           .field = integer(&C::hysteresis, 1, 1 << 30)},
          {.name = "accumulate-allreduce-grads-in-fp32",
           .aliases = "grad-reduce-in-fp32",
           .help = "Gradients accumulate in fp32. This is always so when a step has several "
                   "micro-batches.",
           .field = on(&C::accumulate_allreduce_grads_in_fp32)},
          {.name = "grad-reduce-in-bf16",
           .help = "Data-parallel ranks sum their gradients in bf16.",
           .field = on(&C::grad_reduce_in_bf16)},
          {.name = "fp32-residual-connection",
           .help = "The residual stream is fp32. It is so without --bf16 and --fp16; with them "
                   "this is refused.",
           .field = on(&C::fp32_residual_connection)},
          {.name = "exp-avg-dtype",
           .value = "DTYPE",
           .help = "Type of AdamW's two moments. Muon's momentum is fp32.",
           .field = choice(&C::exp_avg_dtype, {"fp32", "bf16"})},
          {.name = "exp-avg-sq-dtype",
           .value = "DTYPE",
           .help = "Type of the second moment; must equal that of the first.",
           .field = choice(&C::exp_avg_sq_dtype, {"fp32", "bf16"})},
          {.name = "recompute-activations",
           .help = "Recompute the inexpensive parts of a layer in backward (selective).",
           .field = on(&C::recompute_activations)},
          {.name = "checkpoint-activations",
           .aliases = "deepspeed-activation-checkpointing",
           .help = "Recompute whole layers in backward.",
           .field = on(&C::checkpoint_activations)},
          {.name = "recompute-granularity",
           .aliases = "checkpoint-granularity",
           .value = "WHAT",
           .help = "What is recomputed.",
           .field = choice(&C::recompute_granularity, {"full", "selective"})},
          {.name = "recompute-method",
           .aliases = "checkpoint-method",
           .value = "HOW",
           .help =
               "uniform: groups of --recompute-num-layers layers; block: only that many layers.",
           .field = choice(&C::recompute_method, {"uniform", "block"})},
          {.name = "activations-checkpoint-method",
           .value = "HOW",
           .help = "Megatron 2's form of --checkpoint-activations and --recompute-method.",
           .field = {Arity::one,
                     [](C& c, const cli::Values& v) {
                       c.recompute_method = cli::parse_choice(v[0], {"uniform", "block"});
                       c.checkpoint_activations = true;
                     },
                     nullptr,
                     {"uniform", "block"}},
           .sets = "checkpoint-activations recompute-method"},
          {.name = "recompute-num-layers",
           .aliases = "checkpoint-num-layers activations-checkpoint-num-layers",
           .value = "L",
           .help = "Layers in a group, or layers recomputed.",
           .field = integer(&C::recompute_num_layers, 1, 4096)},
          {.name = "cpu-offload",
           .aliases = "optimizer-cpu-offload cpu-optimizer",
           .help = "Keep main parameters and moments in host memory.",
           .field = on(&C::cpu_offload)},
      }};
}

}  // namespace

cli::Table<TrainConfig> learning_flags() {
  return {batch_group(), rate_group(), muon_group(), precision_group()};
}

}  // namespace trainer
