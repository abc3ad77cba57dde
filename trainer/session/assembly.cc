// See assembly.h. Enumerations travel as the words of the tables below; a number travels as the
// shortest text that reads back as itself.
// Not here: what a flag means to another flag (config/derive.cc).
//
// SPDX-License-Identifier: MIT
#include "trainer/session/assembly.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>
#include <utility>

#include "libindexed/format.h"
#include "libindexed/message.h"
#include "tools/cli/text.h"
#include "trainer/config/flags.h"

namespace trainer {
namespace {

using Record = std::map<std::string, std::string>;

template <class E>
using Words = std::span<const std::pair<const char*, E>>;

// As the flags have them, and as meta.json has them.
constexpr std::pair<const char*, ops::Norm> kNormFlags[] = {{"LayerNorm", ops::Norm::layernorm},
                                                            {"RMSNorm", ops::Norm::rmsnorm}};
constexpr std::pair<const char*, ops::Norm> kNorms[] = {{"layernorm", ops::Norm::layernorm},
                                                        {"rmsnorm", ops::Norm::rmsnorm}};
constexpr std::pair<const char*, Position> kPositionFlags[] = {
    {"learned_absolute", Position::learned}, {"rope", Position::rotary}, {"none", Position::none}};
constexpr std::pair<const char*, Position> kPositions[] = {
    {"learned", Position::learned}, {"rotary", Position::rotary}, {"none", Position::none}};
constexpr std::pair<const char*, ops::Activation> kActivations[] = {
    {"gelu_tanh", ops::Activation::gelu_tanh},
    {"gelu_erf", ops::Activation::gelu_erf},
    {"relu", ops::Activation::relu},
    {"swiglu", ops::Activation::swiglu}};
constexpr std::pair<const char*, LrDecayStyle> kDecays[] = {
    {"constant", LrDecayStyle::constant},
    {"linear", LrDecayStyle::linear},
    {"cosine", LrDecayStyle::cosine},
    {"inverse-square-root", LrDecayStyle::inverse_square_root},
    {"WSD", LrDecayStyle::wsd}};
constexpr std::pair<const char*, WsdDecayStyle> kWsdDecays[] = {
    {"linear", WsdDecayStyle::linear},
    {"cosine", WsdDecayStyle::cosine},
    {"exponential", WsdDecayStyle::exponential},
    {"minus_sqrt", WsdDecayStyle::minus_sqrt}};
constexpr std::pair<const char*, WeightDecayStyle> kWeightDecays[] = {
    {"constant", WeightDecayStyle::constant},
    {"linear", WeightDecayStyle::linear},
    {"cosine", WeightDecayStyle::cosine}};

template <class E>
E value_of(Words<E> words, const std::string& word) {
  for (const auto& [name, value] : words) {
    if (word == name) return value;
  }
  throw indexed::FormatError(indexed::message("\"", word, "\" is not known"));
}

template <class E>
const char* word_of(Words<E> words, E value) {
  for (const auto& [name, known] : words) {
    if (value == known) return name;
  }
  return "";
}

// Writes fields into a record.
struct Writer {
  Record& record;

  void operator()(const char* name, const std::string& field) { record[name] = field; }
  void operator()(const char* name, bool field) { record[name] = field ? "true" : "false"; }
  template <class N>
  requires std::is_arithmetic_v<N>
  void operator()(const char* name, N field) {
    char text[40];
    const std::to_chars_result end = std::to_chars(text, text + sizeof text, field);
    record[name] = std::string(text, end.ptr);
  }
  template <class E>
  void word(const char* name, E field, Words<E> words) {
    record[name] = word_of(words, field);
  }
};

// Reads them back; `optional` leaves fields that the record lacks.
struct Reader {
  const Record& record;
  bool optional = false;

  const std::string* text(const char* name) {
    const Record::const_iterator at = record.find(name);
    if (at != record.end()) return &at->second;
    if (!optional) throw indexed::FormatError(indexed::message("model: ", name, " is missing"));
    return nullptr;
  }
  void operator()(const char* name, std::string& field) {
    if (const std::string* found = text(name)) field = *found;
  }
  void operator()(const char* name, bool& field) {
    if (const std::string* found = text(name)) field = *found == "true";
  }
  template <class N>
  requires std::is_arithmetic_v<N>
  void operator()(const char* name, N& field) {
    const std::string* found = text(name);
    if (!found) return;
    const char* end = found->data() + found->size();
    const std::from_chars_result result = std::from_chars(found->data(), end, field);
    if (result.ec != std::errc() || result.ptr != end) {
      throw indexed::FormatError(indexed::message(name, ": \"", *found, "\" is no number"));
    }
  }
  template <class E>
  void word(const char* name, E& field, Words<E> words) {
    if (const std::string* found = text(name)) field = value_of(words, *found);
  }
};

// The one list of ModelSpec's fields, for both directions.
template <class Spec, class Visit>
void visit_model(Spec& s, Visit visit) {
  visit("family", s.family);
  visit("num_layers", s.num_layers);
  visit("hidden_size", s.hidden_size);
  visit("ffn_hidden_size", s.ffn_hidden_size);
  visit("num_attention_heads", s.num_attention_heads);
  visit("num_query_groups", s.num_query_groups);
  visit("kv_channels", s.kv_channels);
  visit("max_position_embeddings", s.max_position_embeddings);
  visit("vocab_size", s.vocab_size);
  visit("padded_vocab_size", s.padded_vocab_size);
  visit.word("norm", s.norm, Words<ops::Norm>(kNorms));
  visit("norm_epsilon", s.norm_epsilon);
  visit.word("position", s.position, Words<Position>(kPositions));
  visit("position_offset", s.position_offset);
  visit("rotary_percent", s.rotary_percent);
  visit("rotary_base", s.rotary_base);
  visit.word("activation", s.activation, Words<ops::Activation>(kActivations));
  visit("parallel_residual", s.parallel_residual);
  visit("linear_bias", s.linear_bias);
  visit("tied_embeddings", s.tied_embeddings);
  visit("hidden_dropout", s.hidden_dropout);
  visit("attention_dropout", s.attention_dropout);
  visit("init_method_std", s.init_method_std);
}

// The same for the schedule, by flag.
template <class Schedule, class Visit>
void visit_schedule(Schedule& s, Visit visit) {
  visit.word("lr-decay-style", s.style, Words<LrDecayStyle>(kDecays));
  visit("lr-warmup-init", s.init_lr);
  visit("lr", s.max_lr);
  visit("min-lr", s.min_lr);
  visit("lr-warmup-samples", s.warmup_steps);
  visit("lr-decay-samples", s.decay_steps);
  visit.word("lr-wsd-decay-style", s.wsd_style, Words<WsdDecayStyle>(kWsdDecays));
  visit("lr-wsd-decay-samples", s.wsd_decay_steps);
  visit.word("weight-decay-incr-style", s.weight_decay_style,
             Words<WeightDecayStyle>(kWeightDecays));
  visit("start-weight-decay", s.start_weight_decay);
  visit("end-weight-decay", s.end_weight_decay);
  visit("weight-decay-samples", s.weight_decay_steps);
}

const char* family_of(const ModelSpec& spec) {
  if (spec.position == Position::rotary)
    return spec.norm == ops::Norm::rmsnorm ? "llama" : "gpt_neox";
  return spec.activation == ops::Activation::relu ? "opt" : "gpt2";
}

}  // namespace

ModelSpec model_spec(const TrainConfig& config, int64_t vocab_size) {
  const TrainConfig::Derived& d = config.derived;
  if (config.parallel_residual && config.hidden_dropout > 0) {
    throw cli::UsageError("--parallel-residual needs --hidden-dropout 0");
  }
  ModelSpec spec;
  spec.num_layers = d.num_layers;
  spec.hidden_size = d.hidden_size;
  spec.ffn_hidden_size = d.ffn_hidden_size;
  spec.num_attention_heads = d.num_attention_heads;
  spec.num_query_groups = d.num_query_groups;
  spec.kv_channels = d.kv_channels;
  spec.max_position_embeddings = d.max_position_embeddings;
  spec.vocab_size = vocab_size;
  spec.padded_vocab_size = pad_vocab_size(config, vocab_size);
  spec.norm = value_of(Words<ops::Norm>(kNormFlags), config.normalization);
  spec.norm_epsilon = static_cast<float>(config.norm_epsilon);
  spec.position = value_of(Words<Position>(kPositionFlags), d.position_embedding_type);
  spec.position_offset = config.position_offset;
  spec.rotary_percent = static_cast<float>(config.rotary_percent);
  spec.rotary_base = static_cast<float>(config.rotary_base);
  spec.activation = value_of(Words<ops::Activation>(kActivations), d.activation);
  spec.parallel_residual = config.parallel_residual;
  spec.linear_bias = config.add_bias_linear;
  spec.tied_embeddings = !config.untie_embeddings_and_output_weights;
  spec.hidden_dropout = static_cast<float>(config.hidden_dropout);
  spec.attention_dropout = static_cast<float>(config.attention_dropout);
  spec.init_method_std = static_cast<float>(config.init_method_std);
  spec.family = family_of(spec);
  complete(spec);
  return spec;
}

namespace {

Fp8Options fp8_options(const TrainConfig& config) {
  Fp8Options fp8;
  if (config.fp8_format.empty()) return fp8;
  fp8.format = config.fp8_format == "e4m3" ? Fp8Options::Format::e4m3 : Fp8Options::Format::hybrid;
  fp8.recipe = config.fp8_recipe == "tensorwise" ? Fp8Options::Recipe::tensorwise
                                                 : Fp8Options::Recipe::delayed;
  fp8.margin = static_cast<int32_t>(config.fp8_margin);
  fp8.history_length = config.fp8_amax_history_len;
  fp8.amax_choice =
      config.fp8_amax_compute_algo == "max" ? ops::AmaxChoice::max : ops::AmaxChoice::most_recent;
  fp8.weight_gradients = config.fp8_wgrad;
  if (config.first_last_layers_bf16) {
    fp8.plain_layers_at_start = config.num_layers_at_start_in_bf16;
    fp8.plain_layers_at_end = config.num_layers_at_end_in_bf16;
  }
  return fp8;
}

}  // namespace

EngineOptions engine_options(const TrainConfig& config) {
  const TrainConfig::Derived& d = config.derived;
  EngineOptions options;
  options.seq_length = config.seq_length;
  options.micro_batch_size = config.micro_batch_size;
  options.max_microbatches = d.global_batch_size / (config.micro_batch_size * d.data_parallel_size);
  options.model_dtype = config.fp16 ? DType::f16 : config.bf16 ? DType::bf16 : DType::f32;
  const bool accumulates =
      options.max_microbatches > 1 || config.accumulate_allreduce_grads_in_fp32;
  options.grad_dtype = accumulates ? DType::f32 : options.model_dtype;
  options.moment_dtype = config.exp_avg_dtype == "bf16" ? DType::bf16 : DType::f32;
  options.recompute.granularity = d.recompute == "full"        ? Recompute::Granularity::full
                                  : d.recompute == "selective" ? Recompute::Granularity::selective
                                                               : Recompute::Granularity::none;
  options.recompute.method =
      d.recompute_block ? Recompute::Method::block : Recompute::Method::uniform;
  options.recompute.num_layers = std::max<int64_t>(d.recompute_num_layers, 1);
  options.sequence_parallel = config.sequence_parallel && config.tensor_model_parallel_size > 1;
  options.schedule = d.pipeline_schedule == "interleaved"   ? ScheduleKind::interleaved
                     : d.pipeline_schedule == "zero-bubble" ? ScheduleKind::zero_bubble
                                                            : ScheduleKind::one_f_one_b;
  options.chunks = static_cast<int>(d.pipeline_chunks);
  options.layers_per_stage = d.pipeline_layers;
  options.reset_attention_mask = config.reset_attention_mask;
  options.clip_grad = static_cast<float>(config.clip_grad);
  options.adam_beta1 = static_cast<float>(config.adam_beta1);
  options.adam_beta2 = static_cast<float>(config.adam_beta2);
  options.adam_eps = static_cast<float>(config.adam_eps);
  if (config.fp16) {
    options.loss_scaler.dynamic = !config.loss_scale;
    options.loss_scaler.initial =
        static_cast<float>(config.loss_scale.value_or(config.initial_loss_scale));
    options.loss_scaler.min = static_cast<float>(config.min_loss_scale);
    options.loss_scaler.window = static_cast<int32_t>(config.loss_scale_window);
    options.loss_scaler.hysteresis = static_cast<int32_t>(config.hysteresis);
  }
  options.seed = static_cast<uint32_t>(config.seed);
  options.capture = config.cuda_graph.value_or(1) != 0;
  options.zero_stage =
      std::max(static_cast<int>(config.zero_stage), config.use_distributed_optimizer ? 1 : 0);
  options.overlap_grad_reduce = config.overlap_grad_reduce;
  options.overlap_param_gather = config.overlap_param_gather;
  options.grad_reduce_in_bf16 = config.grad_reduce_in_bf16;
  options.cpu_offload = config.cpu_offload;
  options.fp8 = fp8_options(config);
  return options;
}

LrSchedule lr_schedule(const TrainConfig& config) {
  const TrainConfig::Derived& d = config.derived;
  LrSchedule schedule;
  schedule.style = value_of(Words<LrDecayStyle>(kDecays), config.lr_decay_style);
  schedule.init_lr = config.lr_warmup_init;
  schedule.max_lr = config.lr.value_or(0);
  schedule.min_lr = config.min_lr;
  schedule.warmup_steps = d.lr_warmup_samples;
  schedule.decay_steps = d.lr_decay_samples;
  schedule.wsd_style = value_of(Words<WsdDecayStyle>(kWsdDecays), config.lr_wsd_decay_style);
  schedule.wsd_decay_steps = d.lr_wsd_decay_samples;
  schedule.weight_decay_style =
      value_of(Words<WeightDecayStyle>(kWeightDecays), config.weight_decay_incr_style);
  schedule.start_weight_decay = d.start_weight_decay;
  schedule.end_weight_decay = d.end_weight_decay;
  schedule.weight_decay_steps = d.train_samples;
  return schedule;
}

Record model_record(const ModelSpec& spec) {
  Record record;
  visit_model(spec, Writer{record});
  return record;
}

ModelSpec model_from_record(const Record& record) {
  ModelSpec spec;
  visit_model(spec, Reader{record});
  return spec;
}

Record schedule_record(const LrSchedule& schedule) {
  Record record;
  visit_schedule(schedule, Writer{record});
  return record;
}

void apply_schedule_record(const Record& record, LrSchedule& schedule) {
  visit_schedule(schedule, Reader{record, true});
}

}  // namespace trainer
