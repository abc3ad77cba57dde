// Layout: everything that a search may decide about training a model on a number of devices, as
// data, and as the trainer's flags. Not here: what a layout costs (layout_cost.h), which is best
// (layout_search.h). May include: config/.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/flags.h"

namespace trainer {

/// One way to divide a step among devices. Fields that the command itself sets are ignored.
struct Layout {
  enum class Recompute : uint8_t { none, selective, block, full };

  int64_t micro_batch_size = 1, microbatches = 1, data = 1;
  int64_t tensor = 1, pipeline = 1;
  bool sequence_parallel = false;
  std::string schedule = "1f1b";
  int64_t chunks = 1;
  bool count_embedding = false, count_loss = false;  ///< Each counts as a layer when layers are
                                                     ///< divided.
  int zero_stage = 0;
  bool overlap = false;  ///< Of both reducing gradients and gathering parameters.
  Recompute recompute = Recompute::none;
  int64_t recompute_layers = 1;  ///< For block: how many of a stage's; for full: per group.
  bool cpu_offload = false;
  bool bf16 = false;
  bool fp8_param_gather = false;

  int64_t global_batch_size() const noexcept { return micro_batch_size * microbatches * data; }
  bool operator==(const Layout&) const = default;
};

/// The parts of a layout that a command's flags fix.
struct Fixed {
  bool micro_batch_size = false, tensor = false, pipeline = false, sequence = false,
       schedule = false, zero = false, overlap = false, recompute = false, offload = false,
       precision = false, fp8_param_gather = false;
};
Fixed fixed_by(const Given& given);
/// Everything is fixed: the layout is the command's.
Fixed all_fixed() noexcept;

/// Names of the flags that decide a layout and that `given` leaves open.
std::vector<std::string> open_flags(const Given& given);
/// The flags that a chosen layout may set.
std::vector<std::string> flags_of_choice();
/// Takes out of config.chosen_flags, which a configuration file has, what the command line sets.
void forget_chosen(TrainConfig& config, const Given& on_line);
/// Opens config.chosen_flags, which an earlier choice set: they are as if nothing had given them.
/// Errors: cli::UsageError for a name that is no flag of a layout.
void reopen(TrainConfig& config, Given& given);

/// Sets the flags of `layout` that `fixed` leaves open, as if the command had given them.
void apply(const Layout& layout, const Fixed& fixed, TrainConfig& config, Given& given);

/// The flags that apply() sets, as words of a command line; flags at their default are left out.
std::vector<std::string> words_of(const Layout& layout, const Fixed& fixed);

/// "tensor 2 + sequence, pipeline 4 (interleaved, 3 chunks), data 8, ZeRO 1, 4 x 2 samples, ...".
std::string describe(const Layout& layout);

/// The space to be searched.
struct LayoutSpace {
  int64_t world_size = 1, local_size = 1;
  int64_t num_layers = 1;
  int64_t most_samples = 1;  ///< Per step.
  bool exactly = false;      ///< Every step has exactly that many.
  bool bf16 = false;         ///< The device supports it, and no other precision is requested.
};

/// Every layout of the space, without recomputation and offload, in a fixed order. Some of them
/// cannot run: derive_and_check() decides. Tensor parallelism stays within a host unless its size
/// is given; micro-batches are powers of two, three times those, or all of a step.
std::vector<Layout> enumerate_layouts(const LayoutSpace& space, const TrainConfig& config,
                                      const Fixed& fixed);

/// Why there are none, in the flags that were given.
std::string no_layout(const LayoutSpace& space, const TrainConfig& config, const Fixed& fixed);

}  // namespace trainer
