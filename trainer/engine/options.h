// EngineOptions: what a run of steps is asked for. Setup: what follows from it for one rank. Not
// here: flags (config/), memory (step.h). May include: model/run.h, optim/, parallel/, schedule/.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/model/run.h"
#include "trainer/optim/optimizer.h"
#include "trainer/parallel/topology.h"
#include "trainer/schedule/action.h"

namespace trainer {

/// What a run of steps is asked for.
struct EngineOptions {
  int64_t seq_length = 0;
  int64_t micro_batch_size = 0;
  int64_t max_microbatches = 1;  ///< Largest number in a step (batch ramp-up may use fewer).
  DType model_dtype = DType::f32;
  DType grad_dtype = DType::f32;
  DType moment_dtype = DType::f32;
  Recompute recompute;
  bool sequence_parallel = false;                     ///< No effect on one tensor-parallel rank.
  ScheduleKind schedule = ScheduleKind::one_f_one_b;  ///< Of the pipeline's stages.
  int chunks = 1;                                     ///< Model chunks a rank, for interleaved.
  /// As place_on() takes them; empty: balanced for the head, or even with several chunks.
  std::vector<int64_t> layers_per_stage;
  int64_t head_rows =
      0;  ///< Rows of logits held at once; 0: chosen so that they take at most 512 MiB.
  bool reset_attention_mask = false;
  OptimizerKind optimizer = OptimizerKind::adamw;
  MuonOptions muon;  ///< query_rows and key_rows follow from the model.
  /// Every token of a step counts the same: HostBatch::loss_mask is weighed (data/batch_loader.h),
  /// where it else is 0 or 1 and a step's loss is the mean of its micro-batches' means.
  bool per_token_loss = false;
  float clip_grad = 1;
  float adam_beta1 = 0.9f, adam_beta2 = 0.999f, adam_eps = 1e-8f;
  LossScaler loss_scaler;
  uint32_t seed = 1234;
  /// Of the linears that end attention and MLP; 0: the spec's, over the root of twice the layers.
  float output_init_std = 0;
  bool fuse_residual =
      true;  ///< Residual additions in the linears' epilogues where no dropout forbids it.
  bool capture = true;  ///< Replay the step as a recorded graph where the device can.
  // Among data-parallel ranks. Source: Rajbhandari et al. 2020 (ZeRO).
  int zero_stage = 0;  ///< Shared: 1 main parameters and moments, 2 gradients, 3 parameters too.
  bool overlap_grad_reduce = false;   ///< Gradients leave during backward.
  bool overlap_param_gather = false;  ///< Updated parameters come during the next forward.
  bool grad_reduce_in_bf16 = false;   ///< Ranks' gradients are added in bf16, not grad_dtype.
  bool cpu_offload = false;  ///< Main parameters and moments lie in page-locked host memory.
  Fp8Options fp8;
};

/// What a layout cannot be, before any memory is taken: a message of one line naming the numbers,
/// or empty.
std::string layout_refusal(const ModelSpec& spec, const EngineOptions& options,
                           const Topology& topology);

/// One rank's part of a run, fixed before any memory is taken.
struct Setup {
  /// Errors: ShapeError for options that do not fit.
  Setup(const ModelSpec& spec, const EngineOptions& options, const Topology& topology = {});

  const ModelSpec spec;
  const EngineOptions options;
  const Topology topology;
  const std::vector<Place> places;  ///< Of this rank's model chunks.
  const Share share;                ///< Among the data-parallel ranks.

  /// Each data-parallel rank updates its share (ZeRO 1 and up).
  bool in_shares() const noexcept { return options.zero_stage > 0 && share.size > 1; }
  bool sequence_parallel() const noexcept {
    return options.sequence_parallel && topology.tensor_size > 1;
  }
  /// Whether a query may see fewer keys than all before it.
  bool keys_hidden() const noexcept {
    return options.reset_attention_mask ||
           (spec.sliding_window > 0 && spec.sliding_window < options.seq_length);
  }
  int64_t head_rows() const;  ///< The option, or what it chooses.
  OptimizerOptions optimizer() const;
};

}  // namespace trainer
