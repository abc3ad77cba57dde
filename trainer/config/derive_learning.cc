// The steps of derive_and_check about how the model learns. See derivation.h.
// Source: get_optimizer_param_scheduler and validate_args of Megatron-LM; Megatron-DeepSpeed for
// *_tokens.
//
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <initializer_list>
#include <utility>

#include "tools/cli/fields.h"
#include "tools/cli/text.h"
#include "trainer/config/derivation.h"

namespace trainer {

using cli::concat;
using cli::UsageError;

namespace {

// At most one of several flags for the same thing may be given.
void one_of(std::initializer_list<std::pair<bool, std::string_view>> ways) {
  std::string_view first;
  for (const auto& [used, flag] : ways) {
    if (!used) continue;
    if (!first.empty())
      throw UsageError(concat("--", first, " and --", flag, " exclude each other"));
    first = flag;
  }
}

// a * b for two numbers of the command line.
int64_t product(std::string_view name_a, int64_t a, std::string_view name_b, int64_t b) {
  int64_t out = 0;
  if (__builtin_mul_overflow(a, b, &out))
    throw UsageError(
        concat(name_a, " ", a, " times ", name_b, " ", b, " is more than ", cli::kMaxInteger));
  return out;
}

}  // namespace

// Whatever counts in steps is used in samples.
int64_t Derivation::samples_of(std::string_view name, int64_t steps) const {
  return product(name, steps, "--global-batch-size", config.derived.global_batch_size);
}

void Derivation::ramp() {
  TrainConfig::Derived& d = derived();
  if (config.rampup_batch_size.empty()) return;
  if (config.rampup_batch_size.size() != 3) {
    throw UsageError("--rampup-batch-size takes three numbers: START INCREMENT SAMPLES");
  }
  const int64_t limit = cli::kMaxInteger;
  d.rampup_start = cli::parse_integer(config.rampup_batch_size[0], 1, limit);
  d.rampup_increment = cli::parse_integer(config.rampup_batch_size[1], 1, limit);
  d.rampup_samples = cli::parse_integer(config.rampup_batch_size[2], 0, limit);
  const int64_t rise = d.global_batch_size - d.rampup_start;
  if (rise < 0 || rise % d.rampup_increment != 0) {
    throw UsageError(concat("--rampup-batch-size ", d.rampup_start, " ", d.rampup_increment,
                            " does not reach --global-batch-size ", d.global_batch_size,
                            " in whole increments"));
  }
  const int64_t unit = config.micro_batch_size * d.data_parallel_size;
  // If the first two are multiples, all are.
  for (const int64_t size : {d.rampup_start, d.rampup_start + std::min(rise, d.rampup_increment)}) {
    if (size == d.global_batch_size || size % unit == 0) continue;
    throw UsageError(concat("--rampup-batch-size passes through ", size,
                            ", no multiple of --micro-batch-size ", config.micro_batch_size,
                            " times data-parallel size ", d.data_parallel_size));
  }
}

void Derivation::batches() {
  TrainConfig::Derived& d = derived();
  const int64_t unit = config.micro_batch_size * d.data_parallel_size;
  if (const std::optional<int64_t> steps = config.gradient_accumulation_steps) {
    const int64_t whole = product("gradient_accumulation_steps", *steps, "samples of a step", unit);
    if (config.global_batch_size.value_or(whole) != whole)
      throw UsageError(concat("global batch size ", *config.global_batch_size, " is not ", *steps,
                              " gradient_accumulation_steps of --micro-batch-size ",
                              config.micro_batch_size, " on ", d.data_parallel_size,
                              " data-parallel ranks"));
    config.global_batch_size = whole;
  }
  d.global_batch_size = config.global_batch_size.value_or(unit);
  if (d.global_batch_size % unit != 0) {
    throw UsageError(concat("--global-batch-size ", d.global_batch_size,
                            " is no multiple of --micro-batch-size ", config.micro_batch_size,
                            " times data-parallel size ", d.data_parallel_size));
  }
  ramp();
}

void Derivation::length() {
  TrainConfig::Derived& d = derived();
  if (config.train_iters && config.train_samples) {
    throw UsageError("--train-iters and --train-samples exclude each other");
  }
  const BatchSchedule schedule(config);
  const int64_t steps = steps_of_run(config);
  d.train_iters = steps;
  // No ramp reaches more than this.
  if (!config.train_samples)
    samples_of(config.train_iters ? "--train-iters" : "steps of --train-tokens", steps);
  const int64_t evaluation = samples_of("--eval-iters", config.eval_iters);
  product("samples of --eval-iters", evaluation, "evaluations", steps / config.eval_interval + 1);
  // The number of samples for the sample arrays: as in Megatron, the requested number if samples
  // were requested.
  d.train_samples = config.train_samples.value_or(schedule.samples_after(steps));
}

void Derivation::learning_rate() {
  TrainConfig::Derived& d = derived();
  one_of({{config.lr_decay_iters.has_value(), "lr-decay-iters"},
          {config.lr_decay_samples.has_value(), "lr-decay-samples"},
          {config.lr_decay_tokens.has_value(), "lr-decay-tokens"}});
  one_of({{config.lr_wsd_decay_iters.has_value(), "lr-wsd-decay-iters"},
          {config.lr_wsd_decay_samples.has_value(), "lr-wsd-decay-samples"}});
  one_of({{config.lr_warmup_fraction.has_value(), "lr-warmup-fraction"},
          {config.lr_warmup_iters > 0, "lr-warmup-iters"},
          {config.lr_warmup_samples > 0, "lr-warmup-samples"},
          {config.lr_warmup_tokens.has_value(), "lr-warmup-tokens"}});
  if (!config.lr) return;  // --skip-train
  if (config.min_lr > *config.lr) {
    throw UsageError(concat("--min-lr ", config.min_lr, " is above --lr ", *config.lr));
  }
  const BatchSchedule schedule(config);
  const auto samples_after = [&](std::string_view name, int64_t steps) {
    samples_of(name, steps);
    return static_cast<double>(schedule.samples_after(steps));
  };
  const double sequence = static_cast<double>(config.seq_length);
  d.lr_decay_samples = static_cast<double>(d.train_samples);
  if (config.lr_decay_iters)
    d.lr_decay_samples = samples_after("--lr-decay-iters", *config.lr_decay_iters);
  if (config.lr_decay_samples) d.lr_decay_samples = static_cast<double>(*config.lr_decay_samples);
  if (config.lr_decay_tokens)
    d.lr_decay_samples = static_cast<double>(*config.lr_decay_tokens) / sequence;
  d.lr_warmup_samples = config.lr_warmup_samples > 0
                            ? static_cast<double>(config.lr_warmup_samples)
                            : samples_after("--lr-warmup-iters", config.lr_warmup_iters);
  if (config.lr_warmup_tokens)
    d.lr_warmup_samples = static_cast<double>(*config.lr_warmup_tokens) / sequence;
  if (config.lr_warmup_fraction)
    d.lr_warmup_samples = *config.lr_warmup_fraction * d.lr_decay_samples;
  if (d.lr_warmup_samples >= d.lr_decay_samples && d.lr_warmup_samples > 0) {
    const auto samples = [&](double number, std::string_view flag) {
      const std::string source = schedule_source(config, flag);
      return concat(number, " samples", source.empty() ? "" : concat(" (", source, ")"));
    };
    throw UsageError(concat("warm-up of ", samples(d.lr_warmup_samples, "lr-warmup-samples"),
                            " is not shorter than the decay of ",
                            samples(d.lr_decay_samples, "lr-decay-samples")));
  }
  // As Megatron's OptimizerParamScheduler.
  if (config.lr_warmup_init > *config.lr)
    throw UsageError(
        concat("--lr-warmup-init ", config.lr_warmup_init, " is above --lr ", *config.lr));
  if (d.lr_warmup_samples == 0) idle({"lr-warmup-init"}, "without a warm-up");
  if (config.lr_decay_style != "WSD")
    idle({"lr-wsd-decay-style", "lr-wsd-decay-iters", "lr-wsd-decay-samples"},
         "without --lr-decay-style WSD");
  if (config.lr_decay_style == "WSD") {
    if (!config.lr_wsd_decay_iters && !config.lr_wsd_decay_samples) {
      throw UsageError("--lr-decay-style WSD needs --lr-wsd-decay-iters or --lr-wsd-decay-samples");
    }
    if (config.lr_wsd_decay_samples)
      d.lr_wsd_decay_samples = static_cast<double>(*config.lr_wsd_decay_samples);
    else
      d.lr_wsd_decay_samples = static_cast<double>(
          last_samples("--lr-wsd-decay-iters", schedule, *config.lr_wsd_decay_iters));
  }
}

// The samples of the last steps of the decay, of which those of a ramp are smaller.
int64_t Derivation::last_samples(std::string_view name, const BatchSchedule& schedule,
                                 int64_t steps) const {
  const int64_t full = samples_of(name, steps);
  const int64_t end = config.lr_decay_iters.value_or(
      schedule.steps_for(static_cast<int64_t>(config.derived.lr_decay_samples)));
  if (steps > end) return full;
  return schedule.samples_after(end) - schedule.samples_after(end - steps);
}

void Derivation::weight_decay() {
  TrainConfig::Derived& d = derived();
  const bool constant = config.weight_decay_incr_style == "constant";
  if (constant && (config.start_weight_decay || config.end_weight_decay)) {
    throw UsageError(
        "--start-weight-decay and --end-weight-decay need --weight-decay-incr-style linear or "
        "cosine");
  }
  if (!constant && (!config.start_weight_decay || !config.end_weight_decay)) {
    throw UsageError(concat("--weight-decay-incr-style ", config.weight_decay_incr_style,
                            " needs --start-weight-decay and --end-weight-decay"));
  }
  d.start_weight_decay = config.start_weight_decay.value_or(config.weight_decay);
  d.end_weight_decay = config.end_weight_decay.value_or(config.weight_decay);
  if (d.end_weight_decay < d.start_weight_decay) {
    throw UsageError(concat("--end-weight-decay ", d.end_weight_decay,
                            " is below --start-weight-decay ", d.start_weight_decay,
                            ": weight decay does not fall, as in Megatron"));
  }
}

void Derivation::fp8() {
  if (config.fp8_format.empty()) {
    idle({"fp8-recipe", "fp8-margin", "fp8-amax-history-len", "fp8-amax-compute-algo",
          "no-fp8-power-of-two-scales", "no-fp8-wgrad", "fp8-param-gather",
          "first-last-layers-bf16", "num-layers-at-start-in-bf16", "num-layers-at-end-in-bf16"},
         "without --fp8-format");
    return;
  }
  for (const std::string_view format : {"e4m3", "hybrid"})
    if (given.contains(concat("fp8-", format)) && config.fp8_format != format)
      throw UsageError(concat("--fp8-", format, " and --fp8-",
                              given.contains(concat("fp8-", config.fp8_format)) ? "" : "format ",
                              config.fp8_format, " contradict each other"));
  if (config.fp8_recipe != "delayed") {
    for (const std::string_view flag : {"fp8-amax-history-len", "fp8-amax-compute-algo"})
      if (changed(flag))
        throw UsageError(concat("--", flag, ": scales of --fp8-recipe ", config.fp8_recipe,
                                " do not look back"));
  }
  if (changed("no-fp8-power-of-two-scales") && config.fp8_recipe != "rowwise" &&
      config.fp8_recipe != "blockwise")
    notes.push_back(
        "--no-fp8-power-of-two-scales changes nothing: only scales of --fp8-recipe rowwise and "
        "blockwise are powers of two");
  if (!config.first_last_layers_bf16) {
    idle({"num-layers-at-start-in-bf16", "num-layers-at-end-in-bf16"},
         "without --first-last-layers-bf16");
  } else if (config.num_layers_at_start_in_bf16 + config.num_layers_at_end_in_bf16 >=
             config.derived.num_layers) {
    notes.push_back(concat("--fp8-format changes nothing: --first-last-layers-bf16 leaves out all ",
                           config.derived.num_layers, " layers"));
    return;
  }
  fp8_param_gather();
  if (config.fp8_recipe == "delayed" && !changed("fp8-amax-history-len") &&
      !changed("fp8-amax-compute-algo"))
    notes.push_back(concat("--fp8-format: scales follow the largest values of the last ",
                           config.fp8_amax_history_len,
                           " steps; Megatron's look back one, --fp8-amax-history-len 1"));
}

void Derivation::fp8_param_gather() {
  if (!config.fp8_param_gather) return;
  if (config.fp8_recipe == "rowwise")
    throw UsageError(
        "--fp8-param-gather: --fp8-recipe rowwise rounds a weight twice, with scales of its rows "
        "and of its columns, which is as many bytes as 16 bits");
  if (derived().data_parallel_size == 1)
    notes.push_back("--fp8-param-gather: nothing to gather on one data-parallel rank");
  else if (!config.use_distributed_optimizer && config.zero_stage == 0 &&
           config.optimizer != "dist_muon")
    throw UsageError(
        "--fp8-param-gather needs --use-distributed-optimizer or --zero-stage 1 to 3: otherwise "
        "each rank updates all weights, and none are gathered");
}

void Derivation::optimizer() {
  derived().muon = config.optimizer == "muon" || config.optimizer == "dist_muon";
  if (derived().muon) {
    if (config.zero_stage >= 2 && derived().data_parallel_size > 4)
      notes.push_back(
          concat("--zero-stage ", config.zero_stage, " with --optimizer ", config.optimizer,
                 ": the four matrices of a layer leave some of ", derived().data_parallel_size,
                 " data-parallel ranks without any; --zero-stage 1 shares them evenly"));
    return;
  }
  idle({"muon-momentum", "muon-nesterov", "muon-no-split-qkv", "muon-coefficient-type",
        "muon-num-ns-steps", "muon-scale-mode", "muon-extra-scale-factor", "muon-fp32-matmul-prec",
        "muon-tp-mode"},
       "without --optimizer muon");
}

void Derivation::precision() {
  if (config.fp16 && config.bf16) throw UsageError("--fp16 and --bf16 exclude each other");
  if (!config.fp16)
    idle({"loss-scale", "initial-loss-scale", "min-loss-scale", "loss-scale-window", "hysteresis"},
         "without --fp16");
  else if (config.loss_scale)
    idle({"initial-loss-scale", "min-loss-scale", "loss-scale-window", "hysteresis"},
         "with a fixed --loss-scale");
  fp8();
  if (config.fp32_residual_connection && (config.fp16 || config.bf16)) {
    throw UsageError(concat("--fp32-residual-connection: with --", config.fp16 ? "fp16" : "bf16",
                            " the sum that runs through the layers has that precision here"));
  }
  if (!config.exp_avg_sq_dtype.empty() && config.exp_avg_sq_dtype != config.exp_avg_dtype) {
    throw UsageError(concat("--exp-avg-sq-dtype ", config.exp_avg_sq_dtype,
                            " must be --exp-avg-dtype, which is ", config.exp_avg_dtype));
  }
  if (config.min_loss_scale > config.initial_loss_scale) {
    throw UsageError(concat("--min-loss-scale ", config.min_loss_scale,
                            " is above --initial-loss-scale ", config.initial_loss_scale));
  }
}

std::string schedule_source(const TrainConfig& c, std::string_view flag) {
  const auto given = [](std::string_view name, const auto& value) {
    return value ? concat("--", name, " ", *value) : std::string();
  };
  if (flag == "lr-warmup-samples") {
    if (c.lr_warmup_samples > 0) return "";
    if (c.lr_warmup_iters > 0) return concat("--lr-warmup-iters ", c.lr_warmup_iters);
    return given("lr-warmup-fraction", c.lr_warmup_fraction) +
           given("lr-warmup-tokens", c.lr_warmup_tokens);
  }
  if (flag == "lr-wsd-decay-samples")
    return c.lr_wsd_decay_samples ? "" : given("lr-wsd-decay-iters", c.lr_wsd_decay_iters);
  if (flag == "lr-decay-samples") {
    if (c.lr_decay_samples) return "";
    if (c.lr_decay_iters || c.lr_decay_tokens)
      return given("lr-decay-iters", c.lr_decay_iters) +
             given("lr-decay-tokens", c.lr_decay_tokens);
  }
  if (flag != "lr-decay-samples" && flag != "weight-decay-samples") return "";
  if (c.train_iters) return concat("--train-iters ", *c.train_iters);
  return c.train_samples ? given("train-samples", c.train_samples)
                         : given("train-tokens", c.train_tokens);
}

}  // namespace trainer
