// The trainer's own Engine under load, on one GPU or in any layout of several: for step.cc.
// Not here: the step written out (gpt_step.h).
// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "bench/step/gpt_step.h"
#include "trainer/engine/engine.h"

namespace bench {

/// What to measure.
struct EngineRun {
  int gpus = 1, tensor = 1, pipeline = 1;  ///< The rest is data parallel.
  int64_t microbatches = 1;                ///< A step and data-parallel rank.
  double seconds = 20;
  float hidden_dropout = 0, attention_dropout = 0;
  int64_t documents = 0;    ///< Attention stays within documents of so many tokens; 0: anywhere.
  std::string choices;      ///< As CudaOptions::gemm_choices_path.
  double hold = 0;          ///< As CudaOptions::hold_seconds.
  bool half_state = false;  ///< Gradients and moments in 16 bits.
  bool lean = false;        ///< All layers recomputed.
  bool shares = false;      ///< Each operation's time, of a step queued call by call. One GPU.
  /// seq_length, micro_batch_size and max_microbatches are filled in.
  trainer::EngineOptions options;
};

/// Starts a process for each GPU, holds the load, prints tokens/s over the second half, model
/// flop/s use and memory against the plan. Errors: std::runtime_error when a rank fails.
void measure_engine(const GptShape& shape, const EngineRun& run);

}  // namespace bench
