// Options: their checks, and what follows from them.
//
// SPDX-License-Identifier: MIT
#include "trainer/engine/options.h"

#include <algorithm>
#include <utility>

namespace trainer {
namespace {

constexpr int64_t kLogitsBytes = int64_t{512} << 20;

std::string number(int64_t n) { return std::to_string(n); }

/// FP8 products need sizes that are multiples of 16.
std::string fp8_refusal(const ModelSpec& spec, const EngineOptions& o, const Topology& t) {
  const int64_t heads = spec.num_attention_heads, channels = spec.kv_channels;
  const std::string of_heads = " times --kv-channels " + number(channels);
  const int64_t ranks = t.tensor_size;
  struct Size {
    std::string what;     ///< Its flags.
    int64_t n;            ///< The whole.
    bool divided = true;  ///< Among tensor-parallel ranks.
  };
  for (const Size& size :
       {Size{"--micro-batch-size " + number(o.micro_batch_size) + " times --seq-length " +
                 number(o.seq_length),
             o.micro_batch_size * o.seq_length, false},
        Size{"--hidden-size " + number(spec.hidden_size), spec.hidden_size, false},
        Size{"--num-attention-heads " + number(heads) + " and twice --num-query-groups " +
                 number(spec.num_query_groups) + of_heads,
             spec.qkv_size()},
        Size{"--num-attention-heads " + number(heads) + of_heads, heads * channels},
        Size{"--ffn-hidden-size " + number(spec.ffn_hidden_size), spec.ffn_hidden_size}}) {
    const int64_t each = size.divided ? size.n / ranks : size.n;
    if (each % ops::kFp8Granule == 0) continue;
    const bool shared = size.divided && ranks > 1;
    const bool said = !shared && size.what.ends_with(" " + number(each));
    return size.what + (said ? "" : " is " + number(each)) +
           (shared ? " on each of " + number(ranks) + " tensor-parallel ranks" : "") +
           ": --fp8-format needs a multiple of " + number(ops::kFp8Granule);
  }
  return {};
}

void check_options(const ModelSpec& spec, const EngineOptions& o, const Topology& topology) {
  const auto require = [](bool holds, const std::string& why) {
    if (!holds) throw ShapeError("engine: " + why);
  };
  require(o.seq_length > 0 && o.micro_batch_size > 0 && o.max_microbatches > 0,
          "seq_length, micro_batch_size and max_microbatches must be at least 1");
  require(spec.position == Position::none || o.seq_length <= spec.max_position_embeddings,
          "seq_length " + std::to_string(o.seq_length) + ": at most max_position_embeddings " +
              std::to_string(spec.max_position_embeddings));
  require(o.grad_dtype == DType::f32 || o.grad_dtype == o.model_dtype,
          std::string("grad dtype ") + ops::name(o.grad_dtype) + ": fp32 or the model dtype");
  require(o.moment_dtype == DType::f32 || o.moment_dtype == DType::bf16,
          "moments are fp32 or bf16");
  require(o.muon.product_dtype == DType::bf16 || o.muon.product_dtype == DType::f32,
          "Muon's products are bf16 or fp32");
  require(o.muon.steps >= 1, "Muon takes at least one step of its iteration");
  require(o.zero_stage >= 0 && o.zero_stage <= 3, "zero_stage is 0 to 3");
  const std::string refusal = layout_refusal(spec, o, topology);
  require(refusal.empty(), refusal);
}

std::vector<Place> places_of(const ModelSpec& spec, const EngineOptions& o, const Topology& t) {
  check_options(spec, o, t);
  std::vector<int64_t> layers = o.layers_per_stage;
  if (layers.empty())
    layers = o.chunks > 1 ? even_layers(spec.num_layers, t.pipeline_size * o.chunks)
                          : balanced_layers(spec, t.pipeline_size, o.seq_length);
  return places_on(t, spec, layers);
}

}  // namespace

std::string layout_refusal(const ModelSpec& spec, const EngineOptions& o, const Topology& t) {
  const auto rest = [&](const char* flag, int64_t n) {
    return "--tensor-model-parallel-size " + number(t.tensor_size) + " does not divide --" + flag +
           " " + number(n);
  };
  for (const auto& [flag, n] : {std::pair("num-attention-heads", spec.num_attention_heads),
                                std::pair("num-query-groups", spec.num_query_groups),
                                std::pair("ffn-hidden-size", spec.ffn_hidden_size),
                                std::pair("padded-vocab-size", spec.padded_vocab_size)})
    if (n % t.tensor_size != 0) return rest(flag, n);
  if (o.fp8.on())
    if (const std::string why = fp8_refusal(spec, o, t); !why.empty()) return why;
  if (const std::string why = fp8_gather_refusal(o.fp8); !why.empty()) return why;
  if (o.sequence_parallel && o.seq_length % t.tensor_size != 0)
    return rest("seq-length", o.seq_length) + ", as --sequence-parallel needs";
  const int64_t parts = int64_t{t.pipeline_size} * o.chunks;
  if (o.chunks < 1 || (o.chunks > 1) != (o.schedule == ScheduleKind::interleaved))
    return number(o.chunks) + " model chunks a rank: more than one for the interleaved schedule";
  if (o.chunks > 1 && t.pipeline_size == 1) return "the interleaved schedule needs several stages";
  if (o.schedule == ScheduleKind::sequential && t.pipeline_size > 1)
    return "the sequential schedule has one stage";
  if (o.zero_stage >= 2 && t.data_size > 1 && o.schedule == ScheduleKind::zero_bubble)
    return "--pipeline-schedule zero-bubble needs whole gradients: --zero-stage 0 or 1, not " +
           number(o.zero_stage);
  if (spec.num_layers < parts)
    return number(spec.num_layers) + " layers: fewer than the " + number(parts) +
           " parts of the pipeline";
  if (o.layers_per_stage.empty()) return {};
  int64_t sum = 0;
  for (const int64_t layers : o.layers_per_stage) {
    if (layers < 1) return "a stage of " + number(layers) + " layers: at least 1";
    sum += layers;
  }
  if (static_cast<int64_t>(o.layers_per_stage.size()) != parts || sum != spec.num_layers)
    return number(sum) + " layers in " + number(static_cast<int64_t>(o.layers_per_stage.size())) +
           " stages: " + number(spec.num_layers) + " in " + number(parts) + " expected";
  return {};
}

Setup::Setup(const ModelSpec& spec_, const EngineOptions& options_, const Topology& topology_)
    : spec(spec_),
      options(options_),
      topology(topology_),
      places(places_of(spec, options, topology)),
      share{topology.data_rank, topology.data_size} {}

/// The largest multiple of 128 that keeps the logits under kLogitsBytes; at least 128.
int64_t Setup::head_rows() const {
  if (options.head_rows > 0) return options.head_rows;
  const int64_t row_bytes =
      spec.padded_vocab_size / topology.tensor_size * ops::size_bytes(options.model_dtype);
  const int64_t rows = kLogitsBytes / row_bytes / 128 * 128;
  return std::min(std::max<int64_t>(rows, 128), options.seq_length * options.micro_batch_size);
}

OptimizerOptions Setup::optimizer() const {
  MuonOptions muon = options.muon;
  muon.query_rows = spec.num_attention_heads / spec.num_query_groups * spec.kv_channels;
  muon.key_rows = spec.kv_channels;
  return {.kind = options.optimizer,
          .muon = muon,
          .clip_grad = options.clip_grad,
          .beta1 = options.adam_beta1,
          .beta2 = options.adam_beta2,
          .eps = options.adam_eps,
          .scaler = options.loss_scaler,
          .seed = options.seed,
          .in_shares = in_shares()};
}

}  // namespace trainer
