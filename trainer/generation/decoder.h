// Decoder: runs one text through a model, a few tokens at a time, and caches keys and values of
// earlier tokens. For generation; training's forward is stage.h's, and both read the same weights.
// Not here: the choice of the next token (generation/sampling.h), the source of the weights (the
// caller).
// May include: ops/, parallel/flat_layout.h. Shapes as in ops/operation.h with B = 1.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "trainer/ops/arena.h"
#include "trainer/ops/ops.h"
#include "trainer/parallel/flat_layout.h"
#include "trainer/spec/spec.h"

namespace trainer {

/// How a decoder stores a parameter.
struct WeightPlace {
  DType dtype = DType::f32;
  /// For a CPU decoder: the caller's memory with the parameter, which must outlive the decoder.
  /// Null: the decoder allocates its own memory.
  const std::byte* in_place = nullptr;
  bool transposed = false;  ///< A linear's (I, O) matrix lies there, not (O, I).
  /// For a linear whose weight lies in several places: all of them, and in_place is the first.
  std::vector<ops::WeightPiece> pieces = {};
};

/// State: one thread at a time.
class Decoder {
 public:
  /// Allocates weights (undefined until the caller has uploaded them through parameters()) and a
  /// cache for `max_length` positions. `dtype` is the dtype of computation, and of the weights
  /// unless `place` says otherwise: on a CPU matrices can be bf16 while computation is fp32.
  /// Errors: ShapeError when max_length is more than a learned position table has; DeviceError.
  Decoder(const ModelSpec& spec, DType dtype, int64_t max_length, ops::Ops& ops,
          const std::function<WeightPlace(const LocalParam&)>& place = {});

  /// A parameter's memory.
  struct Parameter {
    const LocalParam* param = nullptr;
    Tensor tensor;
    bool in_place = false;    ///< It is the caller's memory, which is already filled.
    bool transposed = false;  ///< The tensor is the parameter's transpose.
    /// If there are any, the numbers lie there: the tensor has only shape and dtype.
    std::vector<ops::WeightPiece> pieces = {};
  };
  const std::vector<Parameter>& parameters() const noexcept { return parameters_; }

  /// Forgets the text.
  void reset() noexcept { length_ = 0; }

  /// The number of cached positions, and the largest possible.
  int64_t length() const noexcept { return length_; }
  int64_t max_length() const noexcept { return max_length_; }

  /// Appends tokens to the text; returns the scores of the token after the last one, vocab_size of
  /// them. Cost: products for the new tokens only, however many are cached. Waits for the device.
  /// On the CPU, scores are the same bits however a text is cut into calls of four tokens or more;
  /// up to three are summed in another order.
  /// Errors: ShapeError for no tokens, or more than max_length() in all.
  std::vector<float> append(std::span<const int32_t> tokens);

 private:
  /// Activations of one pass over at most kChunk positions.
  struct Buffers {
    Tensor tokens, positions, x, branch, y, qkv, attention, wide, narrow, last, logits;
    Tensor words, last_words;  ///< For projected embeddings.
  };

  void allocate(ops::Arena& arena, const std::vector<WeightPlace>& places);
  void fill_rotary_tables();
  static int64_t chunk_size(int64_t count);
  void forward(std::span<const int32_t> tokens);
  void embed(int64_t count);
  void score(int64_t row);
  void project(const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& addend);
  ops::LinearForward linear(int64_t layer, Role weight, Role bias) const;
  void norm(int64_t layer, Role weight, Role bias, const Tensor& x, const Tensor& branch,
            const Tensor& y);
  void block(int64_t layer, int64_t count, bool has_branch);
  void attend(int64_t layer, int64_t count, const Tensor& y, const Tensor& out);
  void mlp(int64_t layer, int64_t count, const Tensor& y, const Tensor& out, const Tensor& addend);
  Tensor weight(int64_t layer, Role role) const;

  static constexpr int64_t kChunk = 512;

  ModelSpec spec_;
  DType dtype_;
  int64_t max_length_;
  int64_t length_ = 0;
  ops::Ops& ops_;
  FlatLayout layout_;
  Tensor cosine_, sine_;
  std::vector<Tensor> keys_, values_;  ///< For each layer: (T, 1, G * D).
  Buffers buffers_;
  std::vector<Parameter> parameters_;  ///< In the order of the layout's slots.
  ops::Arena arena_;  ///< After what allocate() fills, since a first call of it finds the size.
};

}  // namespace trainer
