// Page-locked host memory for copies from and to a GPU. Not here: device memory (cuda_ops.cc).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace ops::cuda {

/// Pinned blocks, for one device. Large ones use huge pages that are populated before the driver
/// pins them, since it pins small pages at only some 4 GB/s (bench/training.md). Any thread may
/// call it.
class HostMemory {
 public:
  explicit HostMemory(int device_index) : device_index_(device_index) {}
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  /// A block of `bytes` bytes. Errors: DeviceError where there is not enough.
  void* allocate(int64_t bytes);
  /// Null is allowed.
  void release(void* block) noexcept;

 private:
  /// What release() needs to free a block on huge pages.
  struct Mapping {
    void* base = nullptr;
    size_t bytes = 0;
  };
  void* map(size_t bytes);

  int device_index_;
  std::mutex mutex_;
  std::map<void*, Mapping> mappings_;
};

}  // namespace ops::cuda
