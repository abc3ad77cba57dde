// EngineOptions: the options of a run. Setup: what follows from them for one rank. Not here: flags
// (config/), memory (step.h). May include: model/run.h, optim/, parallel/, schedule/.
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

/// The options of a run.
struct EngineOptions {
  int64_t seq_length = 0;
  int64_t micro_batch_size = 0;
  int64_t max_microbatches = 1;  ///< Largest number in a step (batch ramp-up may use fewer).
  DType model_dtype = DType::f32;
  DType grad_dtype = DType::f32;
  DType moment_dtype = DType::f32;
  Recompute recompute;
  bool sequence_parallel = false;                     ///< No effect on one tensor-parallel rank.
  ScheduleKind schedule = ScheduleKind::one_f_one_b;  ///< The pipeline's schedule.
  int chunks = 1;                                     ///< Model chunks per rank, for interleaved.
  /// As for place_on(); empty: balanced to account for the head, or equal with several chunks.
  std::vector<int64_t> layers_per_stage;
  int64_t head_rows =
      0;  ///< Rows of logits held at once; 0: chosen so that they take at most 512 MiB.
  bool reset_attention_mask = false;
  OptimizerKind optimizer = OptimizerKind::adamw;
  MuonOptions muon;  ///< query_rows and key_rows follow from the model.
  /// Every token of a step counts the same: HostBatch::loss_mask contains weights
  /// (data/batch_loader.h). Otherwise it is 0 or 1, and a step's loss is the mean of its
  /// micro-batches' means.
  bool per_token_loss = false;
  float clip_grad = 1;
  float adam_beta1 = 0.9f, adam_beta2 = 0.999f, adam_eps = 1e-8f;
  LossScaler loss_scaler;
  uint32_t seed = 1234;
  /// Initial standard deviation of the linears that end attention and MLP; 0: the spec's, divided
  /// by sqrt(2 num_layers).
  float output_init_std = 0;
  bool fuse_residual =
      true;  ///< Residual additions in the linears' epilogues where no dropout forbids it.
  bool capture = true;  ///< Replay the step as a recorded graph where the device can.
  // Among data-parallel ranks. Source: Rajbhandari et al. 2020 (ZeRO).
  int zero_stage = 0;  ///< Shared: 1 main parameters and moments, 2 gradients, 3 parameters too.
  bool overlap_grad_reduce = false;   ///< Gradients are reduced during backward.
  bool overlap_param_gather = false;  ///< Updated parameters are gathered during the next forward.
  bool grad_reduce_in_bf16 = false;   ///< Gradients are summed over ranks in bf16, not grad_dtype.
  bool copy_engines = true;           ///< They carry out overlapped transfers within a host.
  bool cpu_offload = false;  ///< Main parameters and moments are in page-locked host memory.
  Fp8Options fp8;

  /// Whether data-parallel ranks share their memory, for copy engines, which do not speed up a
  /// transfer that nothing overlaps.
  bool shares_memory() const noexcept {
    return copy_engines && (overlap_grad_reduce || overlap_param_gather || zero_stage >= 2);
  }
};

/// Why a layout is impossible, checked before any memory is allocated: one line that names the
/// trainer's flags and their values, or empty.
std::string layout_refusal(const ModelSpec& spec, const EngineOptions& options,
                           const Topology& topology);

/// One rank's part of a run, fixed before any memory is allocated.
struct Setup {
  /// Errors: ShapeError for options that do not fit.
  Setup(const ModelSpec& spec, const EngineOptions& options, const Topology& topology = {});

  const ModelSpec spec;
  const EngineOptions options;
  const Topology topology;
  const std::vector<Place> places;  ///< Places of this rank's model chunks.
  const Share share;                ///< This rank's, among the data-parallel ranks.

  /// Each data-parallel rank updates its share (ZeRO 1 and up).
  bool in_shares() const noexcept { return options.zero_stage > 0 && share.size > 1; }
  /// Data-parallel ranks gather the weights of linears as FP8.
  bool fp8_param_gather() const noexcept {
    return options.fp8.on() && options.fp8.param_gather && in_shares();
  }
  bool sequence_parallel() const noexcept {
    return options.sequence_parallel && topology.tensor_size > 1;
  }
  /// Whether a query may see fewer keys than all before it.
  bool keys_hidden() const noexcept {
    return options.reset_attention_mask ||
           (spec.sliding_window > 0 && spec.sliding_window < options.seq_length);
  }
  int64_t head_rows() const;  ///< The option, or the value chosen for 0.
  OptimizerOptions optimizer() const;
};

}  // namespace trainer
