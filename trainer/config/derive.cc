// derive_and_check: what follows from a configuration, and what it may not ask. The order is model,
// batches, length, learning rate, precision and memory, data and checkpoints, devices. See flags.h.
// Source: validate_args and get_optimizer_param_scheduler of Megatron-LM; Megatron-DeepSpeed for
// *_tokens.
//
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include "tools/cli/fields.h"
#include "tools/cli/text.h"
#include "trainer/config/flags.h"

namespace trainer {
namespace {

using cli::concat;
using cli::UsageError;

// A configuration on its way from asked to derived.
struct Derivation {
  TrainConfig& config;
  const Given& given;
  std::vector<std::string> notes;

  TrainConfig::Derived& derived() { return config.derived; }
  bool has(std::string_view name) const { return given.find(name) != given.end(); }

  void model();
  void position_and_activation();
  void devices(int64_t world_size);
  void tensor_parallel();
  void pipeline();
  void batches();
  void ramp();
  void length();
  void learning_rate();
  void weight_decay();
  void precision();
  void recompute();
  void data();
  void checkpoints();
};

int64_t needed(const std::optional<int64_t>& value, std::string_view flag) {
  if (!value) throw UsageError(concat("--", flag, " is missing"));
  return *value;
}

void divides(int64_t divisor, std::string_view divisor_flag, int64_t number,
             std::string_view number_flag) {
  if (number % divisor != 0) {
    throw UsageError(
        concat("--", divisor_flag, " ", divisor, " does not divide --", number_flag, " ", number));
  }
}

void Derivation::model() {
  TrainConfig::Derived& d = derived();
  d.num_layers = needed(config.num_layers, "num-layers");
  d.hidden_size = needed(config.hidden_size, "hidden-size");
  d.num_attention_heads = needed(config.num_attention_heads, "num-attention-heads");
  if (config.seq_length == 0) throw UsageError("--seq-length is missing");
  if (!config.kv_channels) {
    divides(d.num_attention_heads, "num-attention-heads", d.hidden_size, "hidden-size");
  }
  d.kv_channels = config.kv_channels.value_or(d.hidden_size / d.num_attention_heads);
  d.num_query_groups =
      config.num_query_groups.value_or(config.group_query_attention ? 1 : d.num_attention_heads);
  divides(d.num_query_groups, "num-query-groups", d.num_attention_heads, "num-attention-heads");
  const int64_t plain_width = 4 * d.hidden_size;
  const int64_t gated_width = plain_width * 2 / 3 / 64 * 64;
  const bool gated = config.swiglu || config.activation == "swiglu";
  d.ffn_hidden_size =
      config.ffn_hidden_size.value_or(gated ? std::max<int64_t>(gated_width, 64) : plain_width);
  position_and_activation();
}

void Derivation::position_and_activation() {
  TrainConfig::Derived& d = derived();
  d.position_embedding_type =
      config.use_rotary_position_embeddings ? "rope" : config.position_embedding_type;
  d.max_position_embeddings = config.max_position_embeddings.value_or(config.seq_length);
  if (d.position_embedding_type == "learned_absolute" &&
      d.max_position_embeddings < config.seq_length) {
    throw UsageError(concat("--max-position-embeddings ", d.max_position_embeddings,
                            " is less than --seq-length ", config.seq_length));
  }
  if (config.normalization == "layernorm") config.normalization = "LayerNorm";
  if (config.normalization == "rmsnorm") config.normalization = "RMSNorm";
  if (config.squared_relu) throw UsageError("--squared-relu is not known to this trainer's models");
  if (config.rotary_percent != 1.0 && d.position_embedding_type != "rope" &&
      has("rotary-percent")) {
    notes.push_back("--rotary-percent changes nothing without --position-embedding-type rope");
  }
  if (!config.activation.empty()) {
    d.activation = config.activation;
  } else if (config.swiglu) {
    d.activation = "swiglu";
  } else {
    d.activation = config.bias_gelu_fusion || config.openai_gelu ? "gelu_tanh" : "gelu_erf";
  }
  config.swiglu = d.activation == "swiglu";
}

void refuse_many(std::string_view flag, int64_t value) {
  if (value > 1) {
    throw UsageError(
        concat("--", flag, " ", value, " is not known to this trainer: permitted is 1"));
  }
}

void Derivation::devices(int64_t world_size) {
  TrainConfig::Derived& d = derived();
  refuse_many("context-parallel-size", config.context_parallel_size);
  refuse_many("expert-model-parallel-size", config.expert_model_parallel_size);
  if (config.num_experts.value_or(1) > 1) {
    throw UsageError(
        concat("--num-experts ", *config.num_experts, ": mixtures of experts are not known here"));
  }
  const int64_t share = config.tensor_model_parallel_size * config.pipeline_model_parallel_size;
  if (world_size % share != 0) {
    throw UsageError(concat("--tensor-model-parallel-size ", config.tensor_model_parallel_size,
                            " times --pipeline-model-parallel-size ",
                            config.pipeline_model_parallel_size, " does not divide the ",
                            world_size, world_size == 1 ? " process" : " processes", " there ",
                            world_size == 1 ? "is" : "are"));
  }
  d.world_size = world_size;
  d.data_parallel_size = world_size / share;
  std::string idle;
  const auto mention = [&](bool used, std::string_view flag) {
    if (used) idle += concat(idle.empty() ? "--" : ", --", flag);
  };
  mention(config.sequence_parallel && config.tensor_model_parallel_size == 1, "sequence-parallel");
  if (d.data_parallel_size == 1) {
    mention(config.use_distributed_optimizer, "use-distributed-optimizer");
    mention(config.zero_stage > 0, "zero-stage");
    mention(config.overlap_grad_reduce, "overlap-grad-reduce");
    mention(config.overlap_param_gather, "overlap-param-gather");
  }
  if (!idle.empty()) {
    notes.push_back(idle + (world_size == 1 ? ": nothing to share on one device"
                                            : ": nothing to share in this layout"));
  }
}

// What tensor-parallel ranks divide among them.
void Derivation::tensor_parallel() {
  const int64_t size = config.tensor_model_parallel_size;
  const std::string_view flag = "tensor-model-parallel-size";
  divides(size, flag, derived().num_attention_heads, "num-attention-heads");
  divides(size, flag, derived().num_query_groups, "num-query-groups");
  divides(size, flag, derived().ffn_hidden_size, "ffn-hidden-size");
  if (config.sequence_parallel) divides(size, flag, config.seq_length, "seq-length");
}

// Which layers each stage has, and in which order a step runs.
void Derivation::pipeline() {
  TrainConfig::Derived& d = derived();
  const int64_t stages = config.pipeline_model_parallel_size;
  const std::string of_stages = concat("--pipeline-model-parallel-size ", stages);
  const std::optional<int64_t>& chunk = config.num_layers_per_virtual_pipeline_stage;
  if (d.num_layers < stages) {
    throw UsageError(concat(of_stages, " is more than --num-layers ", d.num_layers));
  }
  if (chunk && stages == 1) {
    throw UsageError(
        "--num-layers-per-virtual-pipeline-stage needs --pipeline-model-parallel-size of 2 or "
        "more");
  }
  if (chunk && d.num_layers % (*chunk * stages) != 0) {
    throw UsageError(concat("--num-layers-per-virtual-pipeline-stage ", *chunk, " times ",
                            of_stages, " does not divide --num-layers ", d.num_layers));
  }
  d.pipeline_chunks = chunk ? d.num_layers / (*chunk * stages) : 1;
  const bool many = d.pipeline_chunks > 1;
  d.pipeline_schedule = config.pipeline_schedule;
  if (d.pipeline_schedule.empty()) d.pipeline_schedule = many ? "interleaved" : "1f1b";
  if (many != (d.pipeline_schedule == "interleaved")) {
    throw UsageError(concat("--pipeline-schedule ", d.pipeline_schedule, " with ",
                            d.pipeline_chunks, " chunks on a rank: ",
                            many ? "permitted is interleaved"
                                 : "interleaved needs --num-layers-per-virtual-pipeline-stage"));
  }
  const std::optional<int64_t>& first = config.decoder_first_pipeline_num_layers;
  const std::optional<int64_t>& last = config.decoder_last_pipeline_num_layers;
  if (many) d.pipeline_layers.assign(static_cast<size_t>(stages * d.pipeline_chunks), *chunk);
  if (!first && !last) return;
  if (stages == 1 || many) {
    throw UsageError(concat("--decoder-", first ? "first" : "last", "-pipeline-num-layers needs ",
                            many ? "one chunk a rank" : "several pipeline stages"));
  }
  const int64_t open = stages - (first ? 1 : 0) - (last ? 1 : 0);
  const int64_t left = d.num_layers - first.value_or(0) - last.value_or(0);
  if (open > 0 ? left < open || left % open != 0 : left != 0) {
    throw UsageError(concat("the first and the last stage's layers leave ", left, " for ", open,
                            " other stages: no equal share"));
  }
  d.pipeline_layers.assign(static_cast<size_t>(stages), open > 0 ? left / open : 0);
  if (first) d.pipeline_layers.front() = *first;
  if (last) d.pipeline_layers.back() = *last;
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
  for (int64_t size = d.rampup_start; size < d.global_batch_size; size += d.rampup_increment) {
    if (size % unit == 0) continue;
    throw UsageError(concat("--rampup-batch-size passes through ", size,
                            ", no multiple of --micro-batch-size ", config.micro_batch_size,
                            " times data-parallel size ", d.data_parallel_size));
  }
}

void Derivation::batches() {
  TrainConfig::Derived& d = derived();
  if (config.micro_batch_size == 0) throw UsageError("--micro-batch-size is missing");
  const int64_t unit = config.micro_batch_size * d.data_parallel_size;
  if (const std::optional<int64_t> steps = config.gradient_accumulation_steps) {
    const int64_t whole = unit * *steps;
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
  if (!config.train_iters && !config.train_samples && !config.train_tokens) {
    throw UsageError("--train-iters is missing (or --train-samples, or --train-tokens)");
  }
  const BatchSchedule schedule(config);
  int64_t steps = cli::kMaxInteger;
  if (config.train_iters) steps = *config.train_iters;
  if (config.train_samples) steps = schedule.steps_for(*config.train_samples);
  if (config.train_tokens) {
    const int64_t samples = (*config.train_tokens + config.seq_length - 1) / config.seq_length;
    const int64_t whole = schedule.steps_for(samples);
    steps = std::min(steps, whole + (schedule.samples_after(whole) < samples ? 1 : 0));
  }
  d.train_iters = steps;
  // What the sample arrays are made for: as Megatron, the asked number when samples were asked for.
  d.train_samples = config.train_samples.value_or(schedule.samples_after(steps));
}

void Derivation::learning_rate() {
  TrainConfig::Derived& d = derived();
  if (!config.lr) {
    if (config.skip_train) return;
    throw UsageError("--lr is missing");
  }
  if (config.min_lr > *config.lr) {
    throw UsageError(concat("--min-lr ", config.min_lr, " is above --lr ", *config.lr));
  }
  const BatchSchedule schedule(config);
  const auto samples_of = [&](int64_t steps) {
    return static_cast<double>(schedule.samples_after(steps));
  };
  const double sequence = static_cast<double>(config.seq_length);
  d.lr_decay_samples = static_cast<double>(d.train_samples);
  if (config.lr_decay_iters) d.lr_decay_samples = samples_of(*config.lr_decay_iters);
  if (config.lr_decay_samples) d.lr_decay_samples = static_cast<double>(*config.lr_decay_samples);
  if (config.lr_decay_tokens)
    d.lr_decay_samples = static_cast<double>(*config.lr_decay_tokens) / sequence;
  d.lr_warmup_samples = config.lr_warmup_samples > 0 ? static_cast<double>(config.lr_warmup_samples)
                                                     : samples_of(config.lr_warmup_iters);
  if (config.lr_warmup_tokens)
    d.lr_warmup_samples = static_cast<double>(*config.lr_warmup_tokens) / sequence;
  if (config.lr_warmup_fraction) {
    if (d.lr_warmup_samples > 0) {
      throw UsageError("--lr-warmup-fraction and another --lr-warmup length exclude each other");
    }
    d.lr_warmup_samples = *config.lr_warmup_fraction * d.lr_decay_samples;
  }
  if (d.lr_warmup_samples >= d.lr_decay_samples && d.lr_warmup_samples > 0) {
    throw UsageError(concat("warm-up of ", d.lr_warmup_samples,
                            " samples is not shorter than the decay of ", d.lr_decay_samples,
                            " samples"));
  }
  if (config.lr_decay_style == "WSD") {
    if (!config.lr_wsd_decay_iters && !config.lr_wsd_decay_samples) {
      throw UsageError("--lr-decay-style WSD needs --lr-wsd-decay-iters or --lr-wsd-decay-samples");
    }
    d.lr_wsd_decay_samples =
        config.lr_wsd_decay_samples
            ? static_cast<double>(*config.lr_wsd_decay_samples)
            : static_cast<double>(*config.lr_wsd_decay_iters * d.global_batch_size);
  }
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
}

void Derivation::precision() {
  if (config.fp16 && config.bf16) throw UsageError("--fp16 and --bf16 exclude each other");
  if (!config.fp16 && has("loss-scale"))
    notes.push_back("--loss-scale changes nothing without --fp16");
  if (config.min_loss_scale > config.initial_loss_scale) {
    throw UsageError(concat("--min-loss-scale ", config.min_loss_scale,
                            " is above --initial-loss-scale ", config.initial_loss_scale));
  }
}

void Derivation::recompute() {
  TrainConfig::Derived& d = derived();
  std::string what = config.recompute_granularity;
  if (config.recompute_activations) {
    if (what == "full")
      throw UsageError(
          "--recompute-activations is selective: it excludes --recompute-granularity full");
    what = "selective";
  }
  if (config.checkpoint_activations) {
    if (what == "selective")
      throw UsageError("--checkpoint-activations is full: it excludes selective recomputation");
    what = "full";
  }
  if (what != "full" && !config.recompute_method.empty()) {
    throw UsageError("--recompute-method needs --recompute-granularity full");
  }
  d.recompute = what.empty() ? "none" : what;
  d.recompute_block = config.recompute_method == "block";
  d.recompute_num_layers = what == "full" ? config.recompute_num_layers.value_or(1) : 0;
  if (d.recompute_num_layers > d.num_layers) {
    throw UsageError(concat("--recompute-num-layers ", d.recompute_num_layers,
                            " is more than --num-layers ", d.num_layers));
  }
}

void Derivation::data() {
  TrainConfig::Derived& d = derived();
  if (config.dataloader_type != "single") {
    throw UsageError("--dataloader-type cyclic is not known here: permitted is single");
  }
  const bool own_paths = !config.train_data_path.empty() || !config.valid_data_path.empty() ||
                         !config.test_data_path.empty() || !config.per_split_data_args_path.empty();
  const bool one_path = !config.data_path.empty() || !config.data_args_path.empty();
  if (!own_paths && !one_path && !config.dry_run) throw UsageError("--data-path is missing");
  if (own_paths && (one_path || !config.split.empty())) {
    throw UsageError("--train-data-path and its like exclude --data-path and --split");
  }
  if (!config.data_path.empty() && !config.data_args_path.empty()) {
    throw UsageError("--data-path and --data-args-path exclude each other");
  }
  d.split = config.split.empty() && !own_paths ? "969, 30, 1" : config.split;
}

void Derivation::checkpoints() {
  if (config.override_opt_param_scheduler && config.use_checkpoint_opt_param_scheduler) {
    throw UsageError(
        "--override-opt_param-scheduler and --use-checkpoint-opt_param-scheduler exclude each "
        "other");
  }
  if (config.ckpt_step && config.load.empty()) throw UsageError("--ckpt-step needs --load");
  if (config.exit_on_missing_checkpoint && config.load.empty()) {
    throw UsageError("--exit-on-missing-checkpoint needs --load");
  }
  if (config.save_interval && config.save.empty()) {
    notes.push_back("--save-interval without --save: no checkpoint will be written");
  }
  if (config.metrics_file.empty() && !config.save.empty())
    config.metrics_file = config.save + "/metrics.jsonl";
}

}  // namespace

std::vector<std::string> derive_and_check(TrainConfig& config, const Given& given,
                                          int64_t world_size) {
  config.derived = {};
  Derivation derivation{config, given, {}};
  derivation.model();
  derivation.devices(world_size);
  derivation.tensor_parallel();
  derivation.pipeline();
  derivation.batches();
  derivation.length();
  derivation.learning_rate();
  derivation.weight_decay();
  derivation.precision();
  derivation.recompute();
  derivation.data();
  derivation.checkpoints();
  return std::move(derivation.notes);
}

int64_t pad_vocab_size(const TrainConfig& config, int64_t vocab_size) noexcept {
  const int64_t multiple = config.make_vocab_size_divisible_by * config.tensor_model_parallel_size;
  return (vocab_size + multiple - 1) / multiple * multiple;
}

}  // namespace trainer
