// See assembly.h. Enumerations are stored as the words of the tables below, numbers as the shortest
// text that reads back the same. Not here: how flags affect each other (config/derive.cc).
//
// SPDX-License-Identifier: MIT
#include "trainer/session/assembly.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>

#include "libindexed/format.h"
#include "libindexed/message.h"
#include "tools/cli/parse.h"
#include "tools/cli/text.h"
#include "trainer/config/flags.h"
#include "trainer/spec/families.h"

namespace trainer {
namespace {

using Record = std::map<std::string, std::string>;

template <class E>
using Words = std::span<const std::pair<const char*, E>>;

constexpr std::pair<const char*, LrDecayStyle> kDecays[] = {
    {"constant", LrDecayStyle::constant},
    {"linear", LrDecayStyle::linear},
    {"linear-to-zero", LrDecayStyle::linear_to_zero},
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

constexpr std::pair<const char*, MuonCoefficients> kMuonCoefficients[] = {
    {"simple", MuonCoefficients::simple},
    {"quintic", MuonCoefficients::quintic},
    {"polar_express", MuonCoefficients::polar_express},
    {"cans", MuonCoefficients::cans},
    {"aol", MuonCoefficients::aol}};
constexpr std::pair<const char*, MuonScale> kMuonScales[] = {
    {"spectral", MuonScale::spectral},
    {"unit_rms_norm", MuonScale::unit_rms_norm},
    {"shape_scaling", MuonScale::shape_scaling}};
constexpr std::pair<const char*, MuonTensorMode> kMuonTensorModes[] = {
    {"blockwise", MuonTensorMode::blockwise},
    {"duplicated", MuonTensorMode::duplicated},
    {"distributed", MuonTensorMode::distributed}};

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

// Writes numbers and words into a record.
struct Writer {
  Record& record;

  template <class N>
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

// Reads back those that the record has.
struct Reader {
  const Record& record;

  template <class N>
  void operator()(const char* name, N& field) {
    const Record::const_iterator at = record.find(name);
    if (at == record.end()) return;
    const std::string& text = at->second;
    const char* end = text.data() + text.size();
    const std::from_chars_result result = std::from_chars(text.data(), end, field);
    if (result.ec != std::errc() || result.ptr != end) {
      throw indexed::FormatError(indexed::message(name, ": \"", text, "\" is not a number"));
    }
  }
  template <class E>
  void word(const char* name, E& field, Words<E> words) {
    const Record::const_iterator at = record.find(name);
    if (at != record.end()) field = value_of(words, at->second);
  }
};

// The schedule's numbers by flag, for reading and writing.
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

MuonOptions muon_options(const TrainConfig& config) {
  MuonOptions options;
  options.momentum = static_cast<float>(config.muon_momentum);
  options.nesterov = config.muon_nesterov;
  options.split_qkv = config.muon_split_qkv;
  options.coefficients =
      value_of(Words<MuonCoefficients>(kMuonCoefficients), config.muon_coefficient_type);
  options.steps = static_cast<int>(config.muon_num_ns_steps);
  options.scale = value_of(Words<MuonScale>(kMuonScales), config.muon_scale_mode);
  options.extra_scale = static_cast<float>(config.muon_extra_scale_factor);
  options.product_dtype = config.muon_fp32_matmul_prec == "medium" ? DType::bf16 : DType::f32;
  options.tensor_mode = value_of(Words<MuonTensorMode>(kMuonTensorModes), config.muon_tp_mode);
  return options;
}

// Sets the requested family, or the first that can represent the model, or none.
void settle_family(ModelSpec& spec) {
  if (spec.family.empty()) {
    const ModelFamily* family = find_family_of(spec);
    if (family != nullptr) spec.family = family->name;
    return;
  }
  std::string known;
  for (const ModelFamily& family : model_families()) {
    known += cli::concat(known.empty() ? "" : ", ", family.name);
    if (family.name != spec.family) continue;
    const std::string why = why_not(spec, family);
    if (why.empty()) return;
    throw cli::UsageError(cli::concat("--model-family ", family.name, ": ", why));
  }
  throw cli::UsageError(cli::concat("--model-family ", spec.family, " is none of ", known));
}

/// The fields of a model that have a flag, with the flag's value. Found once: a search makes
/// thousands of models.
const std::vector<std::pair<const ModelField*, cli::Field<TrainConfig>::Show>>& shown_fields() {
  static const auto fields = [] {
    std::vector<std::pair<const ModelField*, cli::Field<TrainConfig>::Show>> out;
    const cli::Table<TrainConfig> table = model_flags();
    TrainConfig any;
    const std::vector<cli::Row> rows = cli::bind_rows(table, any);
    std::vector<const cli::Flag<TrainConfig>*> flags;  // Of each row.
    for (const cli::Group<TrainConfig>& group : table)
      for (const cli::Flag<TrainConfig>& flag : group.flags) flags.push_back(&flag);
    for (const ModelField& field : model_fields())
      if (const cli::Row* row = cli::find_row(rows, field.flag()))
        out.emplace_back(&field, flags[static_cast<size_t>(row - rows.data())]->field.show);
    return out;
  }();
  return fields;
}

}  // namespace

ModelSpec model_spec(const TrainConfig& config, int64_t vocab_size) {
  const TrainConfig::Derived& d = config.derived;
  if (config.parallel_residual && config.hidden_dropout > 0) {
    throw cli::UsageError("--parallel-residual needs --hidden-dropout 0");
  }
  if (config.parallel_residual && config.post_norm)
    throw cli::UsageError("--parallel-residual and --post-norm exclude each other");
  ModelSpec spec;
  for (const auto& [field, show] : shown_fields()) {
    const cli::Values values = show(config);
    if (!values.empty()) set_field(*field, spec, values[0], true);
  }
  spec.num_query_groups = d.num_query_groups;
  spec.kv_channels = d.kv_channels;
  spec.ffn_hidden_size = d.ffn_hidden_size;
  spec.max_position_embeddings = d.max_position_embeddings;
  set_field(model_field("position"), spec, d.position_embedding_type, true);
  set_field(model_field("activation"), spec, d.activation, true);
  spec.vocab_size = vocab_size;
  spec.padded_vocab_size = pad_vocab_size(config, vocab_size);
  complete(spec);
  settle_family(spec);
  return spec;
}

std::string family_note(const ModelSpec& spec) {
  if (!spec.family.empty()) return {};
  return cli::concat(
      "no family of Hugging Face models holds this model, so megatron-to-hf will not export it; ",
      nearest_family(spec));
}

namespace {

Fp8Options::Recipe fp8_recipe(std::string_view name) {
  using Recipe = Fp8Options::Recipe;
  if (name == "tensorwise") return Recipe::tensorwise;
  if (name == "rowwise") return Recipe::rowwise;
  return name == "blockwise" ? Recipe::blockwise : Recipe::delayed;
}

Fp8Options fp8_options(const TrainConfig& config) {
  Fp8Options fp8;
  if (config.fp8_format.empty()) return fp8;
  fp8.format = config.fp8_format == "e4m3" ? Fp8Options::Format::e4m3 : Fp8Options::Format::hybrid;
  fp8.recipe = fp8_recipe(config.fp8_recipe);
  fp8.power_of_two = config.fp8_power_of_two_scales;
  fp8.margin = static_cast<int32_t>(config.fp8_margin);
  fp8.history_length = config.fp8_amax_history_len;
  fp8.amax_choice =
      config.fp8_amax_compute_algo == "max" ? ops::AmaxChoice::max : ops::AmaxChoice::most_recent;
  fp8.weight_gradients = config.fp8_wgrad;
  fp8.param_gather = config.fp8_param_gather;
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
  options.optimizer = d.muon ? OptimizerKind::muon : OptimizerKind::adamw;
  options.muon = muon_options(config);
  // Without --eod-mask-loss all micro-batches have the same number of tokens.
  options.per_token_loss = config.calculate_per_token_loss && config.eod_mask_loss;
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
  options.output_init_std = static_cast<float>(config.output_layer_init_method_std.value_or(0));
  options.capture = config.cuda_graph.value_or(1) != 0;
  const bool shared = config.use_distributed_optimizer || config.optimizer == "dist_muon";
  options.zero_stage = std::max(static_cast<int>(config.zero_stage), shared ? 1 : 0);
  options.overlap_grad_reduce = config.overlap_grad_reduce;
  options.overlap_param_gather = config.overlap_param_gather;
  options.copy_engines = !config.no_copy_engines;
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

Record schedule_record(const LrSchedule& schedule) {
  Record record;
  visit_schedule(schedule, Writer{record});
  return record;
}

void apply_schedule_record(const Record& record, LrSchedule& schedule) {
  visit_schedule(schedule, Reader{record});
}

}  // namespace trainer
