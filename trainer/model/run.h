// Run: what every part of a model needs to compute: the device, memory, weights, gradients and
// settings, the same from the first step to the last. Pass: what changes from one micro-batch to
// the next. Not here: computing (block.h, head.h, stage.h). May include: ops/, comm/comm.h,
// parallel/.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/model/fp8.h"
#include "trainer/ops/arena.h"
#include "trainer/ops/ops.h"
#include "trainer/parallel/grads.h"
#include "trainer/parallel/weights.h"
#include "trainer/spec/spec.h"

namespace trainer {

/// What backward computes again instead of keeping.
/// selective: norm outputs and activation outputs (attention probabilities are never kept). full:
/// whole layers. Method uniform keeps the input of every num_layers-th layer; method block
/// recomputes the first num_layers layers one by one and keeps everything of the rest. Source:
/// Megatron-LM's --recompute-* flags.
struct Recompute {
  enum class Granularity : uint8_t { none, selective, full };
  enum class Method : uint8_t { uniform, block };
  Granularity granularity = Granularity::none;
  Method method = Method::uniform;
  int64_t num_layers = 1;
};

/// One micro-batch in device memory, all (S, B).
struct MicroBatch {
  Tensor tokens, labels, positions;  ///< int32.
  Tensor loss_mask;                  ///< fp32.
  Tensor first_key;                  ///< int32; empty: one document per sample.
  int64_t index = 0;                 ///< Within the step, from 0.
  int64_t first_sample = 0;          ///< Index in the global batch; dropout depends on it.
};

/// Weight gradients that a zero-bubble schedule computes later than backward: the products, and the
/// Pool memory that they read.
struct LaterWeights {
  struct Product {
    int64_t layer = 0;
    Linear linear{};
    Role weight{}, bias{};  ///< bias = weight: none.
    /// In FP8, dy (O, R) is quantized and transposed, and so is x (I, R) unless rows of other ranks
    /// must be gathered first.
    Tensor dy, x;
    Tensor dy_scale = {}, x_scale = {};
    bool column = false;  ///< A column-parallel linear's: x has only this rank's rows.
  };
  std::vector<Product> products;
  std::vector<ops::PoolTensor> owned;
  std::vector<int64_t> layers;  ///< Layers that are done when the products are.
};

/// One rank's context. It has only references; the engine owns what they refer to.
struct Run {
  const ModelSpec& spec;
  ops::Ops& ops;
  ops::Pool& pool;
  Weights& weights;
  Grads& grads;
  comm::Comm& tp;
  Fp8* fp8 = nullptr;       ///< Null: no layer computes in FP8.
  bool fuse_norms = false;  ///< Fp8Options::fuse_norms, decided.
  Tensor cosine, sine;      ///< Rotary tables; empty without rotary.
  DType model_dtype = DType::f32;
  int64_t seq_length = 0;
  int64_t micro_batch_size = 0;
  int64_t head_rows = 0;  ///< Rows of logits held at once.
  Recompute recompute;
  uint32_t seed = 0;
  bool fuse_residual = true;
  bool per_token_loss = false;  ///< MicroBatch::loss_mask has the rows' final weights.
  /// The residual stream and the norms have only this rank's share of S.
  bool sequence_parallel = false;

  int tensor_rank() const noexcept { return tp.rank(); }
  int tensor_size() const noexcept { return tp.size(); }
  /// The number of this rank's rows of the residual stream, and the first one's position in the
  /// whole sequence.
  int64_t stream_length() const noexcept {
    return sequence_parallel ? seq_length / tensor_size() : seq_length;
  }
  int64_t first_position() const noexcept {
    return sequence_parallel ? stream_length() * tensor_rank() : 0;
  }
};

/// One micro-batch's pass through a model chunk, in a step or in an evaluation.
struct Pass {
  const Run& run;
  MicroBatch batch;
  Tensor state;                   ///< StepState of the steps, or of the evaluations.
  int64_t num_microbatches = 1;   ///< Micro-batches over which the loss is averaged.
  bool training = true;           ///< Dropout is on, and a backward follows.
  LaterWeights* later = nullptr;  ///< Where backward puts weight gradients; null: it computes them.
};

}  // namespace trainer
