// Layouts: enumerated, described, and as flags.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/layout.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>

#include "tools/cli/text.h"

namespace trainer {
namespace {

using cli::concat;

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> out;
  for (int64_t i = 1; i <= n; ++i)
    if (n % i == 0) out.push_back(i);
  return out;
}

/// Parts of the model on each of `pipeline` ranks, by the command's flags.
int64_t chunks_of(const TrainConfig& config, int64_t layers, int64_t pipeline) {
  if (!config.num_layers_per_virtual_pipeline_stage)
    return config.num_virtual_stages_per_pipeline_rank.value_or(1);
  const int64_t counted = layers + (config.account_for_embedding_in_pipeline_split ? 1 : 0) +
                          (config.account_for_loss_in_pipeline_split ? 1 : 0);
  return std::max<int64_t>(1, counted / (*config.num_layers_per_virtual_pipeline_stage * pipeline));
}

/// Micro-batch sizes of at most `most` samples: 1, 2, 3, 4, 6, 8, 12, ... and `most` itself.
std::vector<int64_t> micro_batch_sizes(int64_t most) {
  constexpr int64_t kMost = 512;
  std::set<int64_t> sizes;
  for (int64_t i = 1; i <= std::min(most, kMost); i *= 2) {
    sizes.insert(i);
    if (i >= 2 && i + i / 2 <= std::min(most, kMost)) sizes.insert(i + i / 2);
  }
  if (most <= kMost) sizes.insert(most);
  return {sizes.begin(), sizes.end()};
}

/// The schedules that a pipeline of `layout` can have; chunks that divide the layers, with those
/// that count for embedding and loss.
std::vector<Layout> with_schedules(const Layout& layout, int64_t num_layers, const Fixed& fixed) {
  if (fixed.schedule || layout.pipeline == 1) return {layout};
  std::vector<Layout> out{layout, layout};
  out.back().schedule = "zero-bubble";
  for (int64_t chunks = 2; layout.pipeline * chunks <= num_layers + 2; ++chunks) {
    for (const int counted : {0, 1, 2}) {
      if ((num_layers + counted) % (layout.pipeline * chunks) != 0) continue;
      Layout next = layout;
      next.schedule = "interleaved";
      next.chunks = chunks;
      next.count_loss = counted > 0;
      next.count_embedding = counted > 1;
      out.push_back(next);
    }
  }
  return out;
}

/// Whether weights may be gathered as FP8. Only where the command says so, until a GPU has run it.
bool may_gather_fp8(const TrainConfig& config) {
  return config.fp8_param_gather && !config.fp8_format.empty() && config.fp8_recipe != "rowwise";
}

/// Adds the ways to share among data-parallel ranks.
void add_sharings(const Layout& layout, const TrainConfig& config, const Fixed& fixed,
                  std::vector<Layout>& out) {
  Layout next = layout;
  const int most = fixed.zero || layout.data == 1 ? 0 : 3;
  for (int zero = 0; zero <= most; ++zero) {
    const int64_t given = std::max<int64_t>(config.zero_stage, config.use_distributed_optimizer);
    next.zero_stage = fixed.zero ? static_cast<int>(given) : zero;
    next.fp8_param_gather = next.zero_stage > 0 && layout.data > 1 && may_gather_fp8(config);
    for (const bool overlap : {true, false}) {
      if (overlap && (fixed.overlap || layout.data == 1)) continue;
      next.overlap = fixed.overlap ? config.overlap_grad_reduce : overlap;
      out.push_back(next);
    }
  }
}

/// Takes over the recomputation that the command sets.
void take_recomputation(const TrainConfig& config, Layout& layout) {
  if (config.recompute_activations || config.recompute_granularity == "selective")
    layout.recompute = Layout::Recompute::selective;
  if (config.recompute_granularity == "full" || config.checkpoint_activations)
    layout.recompute =
        config.recompute_method == "block" ? Layout::Recompute::block : Layout::Recompute::full;
  layout.recompute_layers = config.recompute_num_layers.value_or(1);
}

template <auto field>
void reset(TrainConfig& config) {
  config.*field = TrainConfig().*field;
}

/// A flag that decides a layout.
struct LayoutFlag {
  const char* name;
  bool Fixed::*part;  ///< The part that it fixes; none: itself alone.
  void (*reset)(TrainConfig&);
  bool chosen = true;  ///< A choice may set it; else it only forbids one.
};
using C = TrainConfig;
using F = Fixed;
constexpr LayoutFlag kLayoutFlags[] = {
    {"micro-batch-size", &F::micro_batch_size, reset<&C::micro_batch_size>},
    {"global-batch-size", nullptr, reset<&C::global_batch_size>},
    {"tensor-model-parallel-size", &F::tensor, reset<&C::tensor_model_parallel_size>},
    {"sequence-parallel", &F::sequence, reset<&C::sequence_parallel>},
    {"pipeline-model-parallel-size", &F::pipeline, reset<&C::pipeline_model_parallel_size>},
    {"num-virtual-stages-per-pipeline-rank", &F::schedule,
     reset<&C::num_virtual_stages_per_pipeline_rank>},
    {"num-layers-per-virtual-pipeline-stage", &F::schedule,
     reset<&C::num_layers_per_virtual_pipeline_stage>, false},
    {"account-for-embedding-in-pipeline-split", &F::schedule,
     reset<&C::account_for_embedding_in_pipeline_split>},
    {"account-for-loss-in-pipeline-split", &F::schedule,
     reset<&C::account_for_loss_in_pipeline_split>},
    {"decoder-first-pipeline-num-layers", &F::schedule,
     reset<&C::decoder_first_pipeline_num_layers>, false},
    {"decoder-last-pipeline-num-layers", &F::schedule, reset<&C::decoder_last_pipeline_num_layers>,
     false},
    {"pipeline-schedule", &F::schedule, reset<&C::pipeline_schedule>},
    {"zero-stage", &F::zero, reset<&C::zero_stage>},
    {"use-distributed-optimizer", &F::zero, reset<&C::use_distributed_optimizer>, false},
    {"overlap-grad-reduce", &F::overlap, reset<&C::overlap_grad_reduce>},
    {"overlap-param-gather", &F::overlap, reset<&C::overlap_param_gather>},
    {"recompute-activations", &F::recompute, reset<&C::recompute_activations>},
    {"recompute-granularity", &F::recompute, reset<&C::recompute_granularity>},
    {"recompute-method", &F::recompute, reset<&C::recompute_method>},
    {"recompute-num-layers", &F::recompute, reset<&C::recompute_num_layers>},
    {"checkpoint-activations", &F::recompute, reset<&C::checkpoint_activations>, false},
    {"cpu-offload", &F::offload, reset<&C::cpu_offload>},
    {"bf16", &F::precision, reset<&C::bf16>},
    {"fp16", &F::precision, reset<&C::fp16>, false},
    {"fp8-param-gather", &F::fp8_param_gather, reset<&C::fp8_param_gather>}};

}  // namespace

Fixed fixed_by(const Given& given) {
  Fixed fixed;
  for (const LayoutFlag& flag : kLayoutFlags)
    if (flag.part != nullptr && given.contains(flag.name)) fixed.*flag.part = true;
  return fixed;
}

Fixed all_fixed() noexcept {
  return {true, true, true, true, true, true, true, true, true, true, true};
}

std::vector<std::string> open_flags(const Given& given) {
  const Fixed fixed = fixed_by(given);
  std::vector<std::string> names;
  for (const LayoutFlag& flag : kLayoutFlags)
    if (flag.part != nullptr ? !(fixed.*flag.part) : !given.contains(flag.name))
      names.emplace_back(flag.name);
  return names;
}

std::vector<std::string> flags_of_choice() {
  std::vector<std::string> names;
  for (const LayoutFlag& flag : kLayoutFlags)
    if (flag.chosen) names.emplace_back(flag.name);
  return names;
}

void forget_chosen(TrainConfig& config, const Given& on_line) {
  std::erase_if(config.chosen_flags, [&](const auto& name) { return on_line.contains(name); });
}

void reopen(TrainConfig& config, Given& given) {
  for (const std::string& name : config.chosen_flags) {
    const LayoutFlag* flag = std::ranges::find(kLayoutFlags, name, &LayoutFlag::name);
    if (flag == std::end(kLayoutFlags))
      throw cli::UsageError(
          concat("--chosen-flags ", cli::quote(name), ": is no flag that decides a layout"));
    flag->reset(config);
    given.erase(name);
  }
  config.chosen_flags.clear();
}

std::vector<std::string> words_of(const Layout& l, const Fixed& fixed) {
  std::vector<std::string> words;
  const auto add = [&](const char* flag) { words.push_back(concat("--", flag)); };
  const auto number = [&](const char* flag, int64_t value) {
    add(flag);
    words.push_back(std::to_string(value));
  };
  if (!fixed.micro_batch_size) number("micro-batch-size", l.micro_batch_size);
  number("global-batch-size", l.global_batch_size());
  if (!fixed.tensor && l.tensor > 1) number("tensor-model-parallel-size", l.tensor);
  if (!fixed.sequence && l.sequence_parallel) add("sequence-parallel");
  if (!fixed.pipeline && l.pipeline > 1) number("pipeline-model-parallel-size", l.pipeline);
  if (!fixed.schedule && l.pipeline > 1) {
    if (l.chunks > 1) number("num-virtual-stages-per-pipeline-rank", l.chunks);
    if (l.count_embedding) add("account-for-embedding-in-pipeline-split");
    if (l.count_loss) add("account-for-loss-in-pipeline-split");
    if (l.schedule == "zero-bubble") {
      add("pipeline-schedule");
      words.push_back(l.schedule);
    }
  }
  if (!fixed.zero && l.zero_stage > 0) number("zero-stage", l.zero_stage);
  if (!fixed.overlap && l.overlap) {
    add("overlap-grad-reduce");
    if (l.zero_stage > 0) add("overlap-param-gather");
  }
  if (!fixed.recompute && l.recompute == Layout::Recompute::selective) add("recompute-activations");
  if (!fixed.recompute && l.recompute >= Layout::Recompute::block) {
    words.insert(words.end(), {"--recompute-granularity", "full", "--recompute-method",
                               l.recompute == Layout::Recompute::block ? "block" : "uniform"});
    number("recompute-num-layers", l.recompute_layers);
  }
  if (!fixed.offload && l.cpu_offload) add("cpu-offload");
  if (!fixed.precision && l.bf16) add("bf16");
  if (!fixed.fp8_param_gather && l.fp8_param_gather) add("fp8-param-gather");
  return words;
}

void apply(const Layout& l, const Fixed& fixed, TrainConfig& config, Given& given) {
  if (!fixed.micro_batch_size) config.micro_batch_size = l.micro_batch_size;
  config.global_batch_size = l.global_batch_size();
  if (!fixed.tensor) config.tensor_model_parallel_size = l.tensor;
  if (!fixed.sequence) config.sequence_parallel = l.sequence_parallel;
  if (!fixed.pipeline) config.pipeline_model_parallel_size = l.pipeline;
  if (!fixed.schedule && l.pipeline > 1) {
    if (l.chunks > 1) config.num_virtual_stages_per_pipeline_rank = l.chunks;
    config.account_for_embedding_in_pipeline_split = l.count_embedding;
    config.account_for_loss_in_pipeline_split = l.count_loss;
    config.pipeline_schedule = l.schedule == "zero-bubble" ? l.schedule : "";
  }
  if (!fixed.zero) config.zero_stage = l.zero_stage;
  if (!fixed.overlap) {
    config.overlap_grad_reduce = l.overlap;
    config.overlap_param_gather = l.overlap && l.zero_stage > 0;
  }
  if (!fixed.recompute) {
    config.recompute_activations = l.recompute == Layout::Recompute::selective;
    const bool full = l.recompute >= Layout::Recompute::block;
    config.recompute_granularity = full ? "full" : "";
    config.recompute_method = !full                                     ? ""
                              : l.recompute == Layout::Recompute::block ? "block"
                                                                        : "uniform";
    config.recompute_num_layers.reset();
    if (full) config.recompute_num_layers = l.recompute_layers;
  }
  if (!fixed.offload) config.cpu_offload = l.cpu_offload;
  if (!fixed.precision) config.bf16 = l.bf16;
  if (!fixed.fp8_param_gather) config.fp8_param_gather = l.fp8_param_gather;
  for (const std::string& word : words_of(l, fixed))
    if (word.starts_with("--")) given.insert(word.substr(2));
}

std::string describe(const Layout& l) {
  std::string text = concat("tensor ", l.tensor, l.sequence_parallel ? " + sequence" : "",
                            ", pipeline ", l.pipeline);
  if (l.pipeline > 1) {
    text += concat(" (", l.schedule);
    if (l.chunks > 1) text += concat(", ", l.chunks, " chunks");
    text += ")";
  }
  text += concat(", data ", l.data);
  if (l.data > 1) {
    if (l.zero_stage > 0) text += concat(", ZeRO ", l.zero_stage);
    if (l.overlap) text += ", overlap";
    if (l.fp8_param_gather) text += ", FP8 gather";
  }
  text += concat(", ", l.microbatches, " x ", l.micro_batch_size,
                 l.microbatches * l.micro_batch_size == 1 ? " sample" : " samples");
  switch (l.recompute) {
    case Layout::Recompute::none:
      break;
    case Layout::Recompute::selective:
      text += ", recompute selective";
      break;
    case Layout::Recompute::block:
      text += concat(", recompute ", cli::counted(l.recompute_layers, "layer"), " of a stage");
      break;
    case Layout::Recompute::full:
      text += concat(", recompute full");
      if (l.recompute_layers > 1) text += concat(" by ", l.recompute_layers);
  }
  if (l.cpu_offload) text += ", state on the host";
  return text;
}

std::vector<Layout> enumerate_layouts(const LayoutSpace& space, const TrainConfig& config,
                                      const Fixed& fixed) {
  std::vector<Layout> out;
  std::vector<int64_t> tensors = divisors(std::min(space.local_size, space.world_size));
  if (fixed.tensor) tensors = {config.tensor_model_parallel_size};
  for (const int64_t tensor : tensors) {
    if (space.world_size % tensor != 0) continue;
    for (const int64_t pipeline : divisors(space.world_size / tensor)) {
      if (fixed.pipeline && pipeline != config.pipeline_model_parallel_size) continue;
      if (!fixed.pipeline && pipeline > space.num_layers) continue;
      Layout base{.data = space.world_size / tensor / pipeline,
                  .tensor = tensor,
                  .pipeline = pipeline,
                  .zero_stage = 0,
                  .bf16 = space.bf16};
      if (fixed.schedule && !config.pipeline_schedule.empty())
        base.schedule = config.pipeline_schedule;
      if (fixed.schedule) base.chunks = chunks_of(config, space.num_layers, pipeline);
      if (base.chunks > 1) base.schedule = "interleaved";
      if (fixed.offload) base.cpu_offload = config.cpu_offload;
      if (fixed.recompute) take_recomputation(config, base);
      const int64_t samples = space.most_samples / base.data;
      if (samples < 1) continue;
      std::vector<int64_t> sizes = micro_batch_sizes(samples);
      if (fixed.micro_batch_size) sizes = {config.micro_batch_size};
      for (const int64_t size : sizes) {
        if (size > samples) continue;
        if (space.exactly && space.most_samples % (base.data * size) != 0) continue;
        base.micro_batch_size = size;
        base.microbatches = samples / size;
        for (const bool sequence : {true, false}) {
          if (sequence && (tensor == 1 || fixed.sequence)) continue;
          base.sequence_parallel = sequence || (fixed.sequence && config.sequence_parallel);
          for (const Layout& scheduled : with_schedules(base, space.num_layers, fixed))
            add_sharings(scheduled, config, fixed, out);
        }
      }
    }
  }
  return out;
}

std::string no_layout(const LayoutSpace& space, const TrainConfig& config, const Fixed& fixed) {
  const int64_t tensor = fixed.tensor ? config.tensor_model_parallel_size : 1,
                pipeline = fixed.pipeline ? config.pipeline_model_parallel_size : 1;
  if (space.world_size % (tensor * pipeline) != 0)
    return concat("no layout: --tensor-model-parallel-size ", tensor,
                  " times --pipeline-model-parallel-size ", pipeline, " does not divide the ",
                  cli::counted(space.world_size, "device"));
  std::vector<std::string> given;
  const auto add = [&](bool is_fixed, std::string_view flag, int64_t value) {
    if (is_fixed) given.push_back(concat("--", flag, " ", value));
  };
  add(fixed.micro_batch_size, "micro-batch-size", config.micro_batch_size);
  add(fixed.tensor, "tensor-model-parallel-size", config.tensor_model_parallel_size);
  add(fixed.pipeline, "pipeline-model-parallel-size", config.pipeline_model_parallel_size);
  return concat("no layout: --", space.exactly ? "" : "max-", "global-batch-size ",
                space.most_samples, " cannot be divided among ",
                cli::counted(space.world_size, "device"), given.empty() ? "" : " with ",
                cli::join(given, ", "));
}

}  // namespace trainer
