// HostArray: host memory that a device copies from and to, as elements of T; copies that the host
// waits for. May include: ops/ops.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "trainer/ops/ops.h"

namespace trainer {

/// For destructors: waits until the device is done. A device that has failed no longer accesses
/// memory.
inline void wait_at_end(ops::Ops& ops) noexcept {
  try {
    ops.synchronize();
  } catch (const ops::DeviceError&) {
  }
}

/// `count` elements of undefined content. The destructor waits until the device is done with it.
template <class T>
class HostArray {
 public:
  /// Errors: DeviceError when memory cannot be allocated.
  HostArray(ops::Ops& ops, int64_t count)
      : ops_(ops),
        all_(static_cast<T*>(ops.allocate_host(count * static_cast<int64_t>(sizeof(T)))),
             static_cast<size_t>(count)) {}
  ~HostArray() {
    wait_at_end(ops_);
    ops_.release_host(all_.data());
  }
  HostArray(const HostArray&) = delete;
  HostArray& operator=(const HostArray&) = delete;

  T* data() const noexcept { return all_.data(); }
  T& operator[](int64_t i) const noexcept { return all_[static_cast<size_t>(i)]; }
  std::span<T> slice(int64_t first, int64_t count) const noexcept {
    return all_.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  }

 private:
  ops::Ops& ops_;
  std::span<T> all_;
};

/// dst = `values`. Waits. Errors of both: DeviceError.
template <class T>
void upload_now(ops::Ops& ops, const ops::Tensor& dst, const T* values) {
  const HostArray<std::byte> host(ops, dst.bytes());
  std::memcpy(host.data(), values, static_cast<size_t>(dst.bytes()));
  ops.upload(dst, host.data());
  ops.synchronize();
}

/// `values` = src. Waits.
template <class T>
void download_now(ops::Ops& ops, T* values, const ops::Tensor& src) {
  const HostArray<std::byte> host(ops, src.bytes());
  ops.download(host.data(), src);
  ops.synchronize();
  std::memcpy(values, host.data(), static_cast<size_t>(src.bytes()));
}

}  // namespace trainer
