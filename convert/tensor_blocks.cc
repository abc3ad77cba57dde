// SPDX-License-Identifier: MIT
// tensor_blocks.h: blocks numbered through all tensors, and a count of each tensor's remaining
// ones.
#include "convert/tensor_blocks.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "libindexed/workers.h"

namespace convert {

namespace {

// The blocks, numbered through all tensors.
class Numbered {
 public:
  Numbered(std::span<const TensorSource> tensors, const std::function<int64_t(size_t)>& blocks)
      : left_(tensors.size()) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      left_[i] = blocks(i);
      ends_.push_back(count() + left_[i]);
    }
  }

  int64_t count() const { return ends_.empty() ? 0 : ends_.back(); }
  size_t tensor_of(int64_t block) const {
    return static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), block) - ends_.begin());
  }
  /// The block's number within its tensor.
  int64_t in_tensor(int64_t block, size_t tensor) const {
    return tensor == 0 ? block : block - ends_[tensor - 1];
  }
  /// Counts a block of the tensor as done; whether it was the last.
  bool done(size_t tensor) { return --left_[tensor] == 0; }

 private:
  std::vector<int64_t> ends_;
  std::vector<std::atomic<int64_t>> left_;
};

}  // namespace

void for_each_block(std::span<const TensorSource> tensors,
                    const std::function<void(const TensorBlock&)>& use) {
  Numbered blocks(tensors,
                  [&](size_t i) { return (tensors[i].bytes() + kBlockBytes - 1) / kBlockBytes; });
  indexed::share_work(blocks.count(), indexed::copying_threads(), [&](int64_t block) {
    thread_local Scratch scratch;
    const size_t i = blocks.tensor_of(block);
    const int64_t at = blocks.in_tensor(block, i) * kBlockBytes;
    const int64_t size = std::min(kBlockBytes, tensors[i].bytes() - at);
    use({i, at, tensors[i].block(at, size, scratch)});
    if (blocks.done(i)) tensors[i].release();
  });
}

void load_all(std::span<const TensorSource> tensors, std::span<std::byte* const> memories) {
  const auto step = [&](size_t i) {
    return std::max<int64_t>(1, kBlockBytes / std::max<int64_t>(1, tensors[i].row_bytes()));
  };
  Numbered blocks(tensors, [&](size_t i) {
    return tensors[i].bytes() == 0 ? 0 : (tensors[i].rows() + step(i) - 1) / step(i);
  });
  indexed::share_work(blocks.count(), indexed::copying_threads(), [&](int64_t block) {
    const size_t i = blocks.tensor_of(block);
    const int64_t first = blocks.in_tensor(block, i) * step(i);
    const int64_t count = std::min(step(i), tensors[i].rows() - first);
    tensors[i].read_rows(first, count, memories[i] + first * tensors[i].row_bytes());
    if (blocks.done(i)) tensors[i].release();
  });
}

bool same_bytes(const TensorSource& a, const TensorSource& b) {
  if (a.shape != b.shape || a.dtype != b.dtype) return false;
  std::atomic<bool> same = true;
  for_each_block({&a, 1}, [&](const TensorBlock& block) {
    thread_local Scratch scratch;
    const int64_t size = static_cast<int64_t>(block.bytes.size());
    if (same && std::memcmp(block.bytes.data(), b.block(block.at, size, scratch).data(),
                            block.bytes.size()) != 0)
      same = false;
  });
  b.release();
  return same;
}

}  // namespace convert
