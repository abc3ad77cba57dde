// SPDX-License-Identifier: MIT
// tensor_blocks.h: blocks numbered through all tensors, and a count of those that each still has.
#include "convert/tensor_blocks.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "libindexed/workers.h"

namespace convert {

void for_each_block(std::span<const TensorSource> tensors,
                    const std::function<void(const TensorBlock&)>& use) {
  std::vector<int64_t> ends;  // of each tensor: blocks up to its last
  std::vector<std::atomic<int64_t>> left(tensors.size());
  int64_t count = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    left[i] = (tensors[i].bytes() + kBlockBytes - 1) / kBlockBytes;
    ends.push_back(count += left[i]);
  }
  indexed::share_work(count, indexed::copying_threads(), [&](int64_t block) {
    thread_local Scratch scratch;
    const size_t i =
        static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), block) - ends.begin());
    const TensorSource& source = tensors[i];
    const int64_t blocks = (source.bytes() + kBlockBytes - 1) / kBlockBytes;
    const int64_t at = (block - (ends[i] - blocks)) * kBlockBytes;
    const int64_t size = std::min(kBlockBytes, source.bytes() - at);
    use({i, at, source.block(at, size, scratch)});
    if (--left[i] == 0) source.release();
  });
}

}  // namespace convert
