// Fp8Flat: where the bytes and the other parameters are.
//
// SPDX-License-Identifier: MIT
#include "trainer/parallel/fp8_flat.h"

#include <algorithm>
#include <string>
#include <utility>

namespace trainer {

Fp8Flat::Fp8Flat(const FlatLayout& layout, const Share& share, std::vector<bool> in_fp8, bool whole)
    : layout_(&layout),
      in_fp8_(std::move(in_fp8)),
      whole_(whole),
      pieces_(layout.buckets().size()),
      other_at_(layout.slots().size(), -1) {
  std::vector<FlatMemory::Part> parts;
  for (int b = 0; b < layout.num_buckets(); ++b) {
    const std::vector<int>& slots = layout.bucket(b).slots;
    const bool holds =
        std::any_of(slots.begin(), slots.end(), [&](int slot) { return this->in_fp8(slot); });
    bucket_holds_.push_back(holds);
    parts.push_back(holds && whole ? FlatMemory::Part::whole : FlatMemory::Part::none);
    if (holds) add_others(b, share.size);
  }
  bytes_ = FlatMemory(layout, share, std::move(parts));
}

void Fp8Flat::add_others(int bucket, int ranks) {
  std::vector<int> slots;
  for (const int i : layout_->bucket(bucket).slots)
    if (!in_fp8(i)) slots.push_back(i);
  std::sort(slots.begin(), slots.end(),
            [&](int x, int y) { return layout_->slot(x).offset < layout_->slot(y).offset; });
  for (const int i : slots) {
    const Slot& slot = layout_->slot(i);
    constexpr int64_t kGranule = FlatLayout::kGranule;
    other_at_[static_cast<size_t>(i)] = other_elements_;
    add_pieces(bucket, ranks,
               {slot.offset, (slot.param.elements() + kGranule - 1) / kGranule * kGranule});
  }
}

/// Neighbouring parameters, with the padding between them, are divided only where shares end.
void Fp8Flat::add_pieces(int bucket, int ranks, const Range& of_slot) {
  const Bucket& b = layout_->bucket(bucket);
  const int64_t share = b.elements / ranks;
  std::vector<Piece>& pieces = pieces_[static_cast<size_t>(bucket)];
  for (int64_t at = of_slot.first; at < of_slot.first + of_slot.count;) {
    const int64_t owner = (at - b.begin) / share;
    const int64_t count =
        std::min(of_slot.first + of_slot.count, b.begin + (owner + 1) * share) - at;
    Piece* last = pieces.empty() ? nullptr : &pieces.back();
    if (last != nullptr && last->owner == owner && last->range.first + last->range.count == at)
      last->range.count += count;
    else
      pieces.push_back({{at, count}, other_elements_, static_cast<int>(owner)});
    other_elements_ += count;
    at += count;
  }
}

void Fp8Flat::cut(ops::Arena& arena, DType model_dtype) {
  if (bytes_.elements() > 0)
    bytes_.place(arena.cut("fp8 weights", DType::e4m3, {bytes_.elements()}));
  if (other_elements_ > 0) others_ = arena.cut("model parameters", model_dtype, {other_elements_});
}

Tensor Fp8Flat::other(int slot) const {
  const Slot& s = layout_->slot(slot);
  const int64_t at = other_at_[static_cast<size_t>(slot)];
  if (at < 0) throw ShapeError("weights: " + s.param.spec.name + ": it is gathered as FP8");
  return s.in(others_, s.offset - at);
}

}  // namespace trainer
