// Decoder: one text through a model, a few tokens at a time, with keys and values of what came
// before kept. For generation; training's forward is stage.h's, and both read the same weights.
// Not here: which token is taken (generation/sampling.h), where weights come from (the caller).
// May include: ops/, parallel/flat_layout.h. Shapes as in ops/operation.h with B = 1.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/ops/arena.h"
#include "trainer/ops/ops.h"
#include "trainer/parallel/flat_layout.h"
#include "trainer/spec/spec.h"

namespace trainer {

/// State: one thread at a time.
class Decoder {
 public:
  /// Allocates weights (undefined until the caller has uploaded them through parameters()) and a
  /// cache for `max_length` positions.
  /// Errors: ShapeError when max_length is more than a learned position table has; DeviceError.
  Decoder(const ModelSpec& spec, DType dtype, int64_t max_length, ops::Ops& ops);

  /// A parameter's place; the tensor is in `dtype`.
  struct Parameter {
    const LocalParam* param = nullptr;
    Tensor tensor;
  };
  const std::vector<Parameter>& parameters() const noexcept { return parameters_; }

  /// Forgets the text.
  void reset() noexcept { length_ = 0; }

  /// Positions that are cached, and how many there can be.
  int64_t length() const noexcept { return length_; }
  int64_t max_length() const noexcept { return max_length_; }

  /// Appends tokens to the text; returns the scores of the token after the last one, vocab_size of
  /// them. Cost: as many products as tokens, whatever is cached. Waits for the device.
  /// Errors: ShapeError for no tokens, or more than max_length() in all.
  std::vector<float> append(std::span<const int32_t> tokens);

 private:
  /// Activations of one pass over at most kChunk positions.
  struct Buffers {
    Tensor tokens, positions, x, branch, y, qkv, attention, wide, narrow, last, logits;
    Tensor words, last_words;  ///< Of embeddings that are projected.
  };

  void allocate(ops::Arena& arena);
  void fill_rotary_tables();
  void forward(std::span<const int32_t> tokens);
  void embed(int64_t count);
  void score(const Tensor& y);
  void project(const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& addend);
  void norm(int64_t layer, Role weight, Role bias, const Tensor& x, const Tensor& branch,
            const Tensor& y);
  void block(int64_t layer, int64_t count, bool has_branch);
  void attend(int64_t layer, int64_t count, const Tensor& y, const Tensor& out);
  void mlp(int64_t layer, int64_t count, const Tensor& y, const Tensor& out, const Tensor& addend);
  Tensor weight(int64_t layer, Role role) const;

  static constexpr int64_t kChunk = 256;

  ModelSpec spec_;
  DType dtype_;
  int64_t max_length_;
  int64_t length_ = 0;
  ops::Ops& ops_;
  FlatLayout layout_;
  Tensor flat_, cosine_, sine_;
  std::vector<Tensor> keys_, values_;  ///< of each layer: (T, 1, G * D).
  Buffers buffers_;
  ops::Arena arena_;  ///< after what allocate() fills, since its size is found by a first call.
  std::vector<Parameter> parameters_;
};

}  // namespace trainer
