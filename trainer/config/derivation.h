// Derivation: the steps of derive_and_check, from what the user asked for to what follows. Included
// only by derive.cc (model, devices, data, checkpoints) and derive_learning.cc (batches, length,
// learning rate, precision).
// SPDX-License-Identifier: MIT
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/config/flags.h"

namespace trainer {

/// See derive_and_check(). Every step uses what earlier steps have derived, and throws
/// cli::UsageError for what cannot be honoured.
struct Derivation {
  TrainConfig& config;
  const Given& given;
  std::vector<std::string> notes;

  TrainConfig::Derived& derived() { return config.derived; }
  /// Whether `name` has another value than its default: a saved configuration gives all flags.
  bool changed(std::string_view name) const;
  /// Notes each of `flags` that was changed: "--FLAG changes nothing REASON".
  void idle(std::initializer_list<std::string_view> flags, std::string_view reason);

  /// Numbers of which 0, or -1, means off, as in Megatron's loop.
  void zeros();
  void missing() const;
  void model();
  void position();
  void activation();
  void devices(int64_t world_size);
  void tensor_parallel();
  void pipeline();
  void pipeline_chunks();
  void even_parts();
  void uneven_stages();
  /// How many of embedding and loss count as a layer when layers are divided; below, the same in
  /// words.
  int64_t head_or_embedding_counted() const;
  std::string layers_counted() const;
  void batches();
  void ramp();
  void length();
  /// The samples of so many steps, none of them smaller for a ramp. Errors: cli::UsageError naming
  /// `name` if they exceed 63 bits.
  int64_t samples_of(std::string_view name, int64_t steps) const;
  int64_t last_samples(std::string_view name, const BatchSchedule& schedule, int64_t steps) const;
  void learning_rate();
  void weight_decay();
  void optimizer();
  void precision();
  void fp8();
  void fp8_param_gather();
  void recompute();
  void data();
  void checkpoints();
};

}  // namespace trainer
