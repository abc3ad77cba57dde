// Fp8Flat: the flat memory of the weights that data-parallel ranks gather as FP8, a byte an
// element, and of the other parameters of the same buckets. Not here: offsets and shares
// (flat_layout.h), the gathering (weights.h), which weights these are and their scales
// (model/fp8.h). May include: ops/, parallel/flat_memory.h. A bucket has a byte for each of its
// elements; those of other parameters and of padding are not used.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "trainer/ops/arena.h"
#include "trainer/parallel/flat_memory.h"

namespace trainer {

/// Copies refer to the same memory. `layout` must outlive it. The default value has no buckets.
class Fp8Flat {
 public:
  Fp8Flat() = default;
  /// `in_fp8`: by slot. `whole`: gathered buckets stay (ZeRO 1 and 2); otherwise a layer's bytes
  /// are gathered into a buffer when they are needed (ZeRO 3), and only its other parameters stay.
  Fp8Flat(const FlatLayout& layout, const Share& share, std::vector<bool> in_fp8, bool whole);
  /// Allocates what stays.
  void cut(ops::Arena& arena, DType model_dtype);

  /// Whether some weights of the bucket are gathered as FP8.
  bool holds(int bucket) const noexcept {
    return !bucket_holds_.empty() && bucket_holds_[static_cast<size_t>(bucket)];
  }
  bool in_fp8(int slot) const noexcept {
    return !in_fp8_.empty() && in_fp8_[static_cast<size_t>(slot)];
  }
  /// Whether the bytes of its buckets stay.
  bool stays_whole() const noexcept { return whole_; }
  /// The bytes of a bucket, if they stay. Errors: ShapeError.
  Tensor bytes(int bucket) const { return bytes_.bucket(bucket); }

  /// A range of other parameters of a bucket that is in one rank's share.
  struct Piece {
    Range range;     ///< In flat memory.
    int64_t at = 0;  ///< In the memory of such parameters.
    int owner = 0;   ///< The rank.
  };
  /// Those of a bucket, in flat memory's order.
  std::span<const Piece> pieces(int bucket) const { return pieces_[static_cast<size_t>(bucket)]; }
  /// A piece, or a parameter by its slot, in the memory of such parameters: model dtype. Errors:
  /// ShapeError for a weight that is gathered as FP8.
  Tensor other(const Piece& piece) const { return others_.slice(piece.at, piece.range.count); }
  Tensor other(int slot) const;
  /// All of that memory, and the bytes that stay; may be empty.
  const Tensor& others() const noexcept { return others_; }
  const Tensor& bytes() const noexcept { return bytes_.tensor(); }

 private:
  void add_others(int bucket, int ranks);
  void add_pieces(int bucket, int ranks, const Range& of_slot);

  const FlatLayout* layout_ = nullptr;
  std::vector<bool> in_fp8_;        ///< By slot.
  std::vector<bool> bucket_holds_;  ///< By bucket.
  bool whole_ = false;
  FlatMemory bytes_;
  std::vector<std::vector<Piece>> pieces_;  ///< By bucket.
  std::vector<int64_t> other_at_;           ///< By slot: its place in others_, or -1.
  int64_t other_elements_ = 0;
  Tensor others_;
};

/// Rounds a part of a weight: x (n), in the model dtype, becomes bytes (n), e4m3. Queued.
using RoundWeight =
    std::function<void(const LocalParam& param, const Tensor& x, const Tensor& bytes)>;

}  // namespace trainer
