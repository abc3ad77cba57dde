// Arena: owns one block of memory on a device, cuts it into parts with named purposes, and reports
// them. Pool: allocates the tensors of a running step from one such part, by first fit. Not here:
// who allocates what (model/, optim/). May include: ops.h. Both work in plan mode too: addresses
// then count from kPlanBase and nothing is allocated, so that one run over PlanOps finds exactly
// the bytes that the real run will need: the same calls get the same offsets.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/ops/ops.h"

namespace ops {

/// Every tensor begins at a multiple of this many bytes (cuBLASLt and 128-bit loads want 16; TMA
/// wants 128).
inline constexpr int64_t kAlignment = 256;
/// Address 0 of a plan; never dereferenced.
inline constexpr int64_t kPlanBase = int64_t{1} << 40;

constexpr int64_t align_up(int64_t bytes) noexcept {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// One block of memory. Bytes and names are fixed before the first step; cut() only moves an end.
class Arena {
 public:
  /// A named cut, for the report.
  struct Cut {
    std::string purpose;
    int64_t bytes = 0;
  };

  /// Plan mode: nothing is allocated and there is no limit.
  Arena() = default;
  /// Allocates `bytes` from ops. Errors: DeviceError with what was wanted and what was free.
  Arena(Ops& ops, int64_t bytes);
  /// Page-locked host memory, which a GPU's kernels can access like device memory, only slower; its
  /// tensors have ops' device. `bytes` 0: nothing. Errors: DeviceError.
  static Arena on_host(Ops& ops, int64_t bytes);
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&&) = delete;

  /// The next part of the block. Equal purposes are added up in the report.
  /// Errors: DeviceError when the block is used up (the plan was wrong).
  Tensor cut(std::string_view purpose, DType dtype, std::initializer_list<int64_t> shape);
  /// Bytes cut so far, rounding included: in plan mode, what the real Arena must have.
  int64_t used_bytes() const noexcept { return used_; }
  /// Those bytes.
  Tensor used() const { return {block_, DType::u8, device_, {used_}}; }
  int64_t capacity_bytes() const noexcept { return capacity_; }
  const std::vector<Cut>& cuts() const noexcept { return cuts_; }
  /// A table: purpose, MiB, share.
  std::string report() const;

 private:
  Ops* ops_ = nullptr;
  std::byte* block_ = nullptr;
  bool on_host_ = false;
  Device device_ = Device::plan;
  int64_t capacity_ = 0;
  int64_t used_ = 0;
  std::vector<Cut> cuts_;
};

class Pool;

/// A tensor that owns its memory in a Pool and frees it when destroyed, in the order of the compute
/// stream: the next operation queued may overwrite it. A borrowed one is a view of memory that
/// another owns, and frees nothing. Converts to Tensor. The Pool must outlive it.
class PoolTensor {
 public:
  PoolTensor() = default;
  PoolTensor(PoolTensor&& other) noexcept;
  PoolTensor& operator=(PoolTensor&& other) noexcept;  ///< Frees what it had.
  ~PoolTensor() { reset(); }
  static PoolTensor borrow(const Tensor& tensor) noexcept;

  operator const Tensor&() const noexcept { return tensor_; }
  const Tensor& get() const noexcept { return tensor_; }
  const Tensor* operator->() const noexcept { return &tensor_; }
  explicit operator bool() const noexcept { return bool(tensor_); }
  /// A view: another owns the memory.
  bool borrowed() const noexcept { return tensor_ && pool_ == nullptr; }
  /// Frees the memory now; empty afterwards.
  void reset() noexcept;

 private:
  friend Pool;
  PoolTensor(Pool* pool, size_t purpose, const Tensor& tensor) noexcept
      : pool_(pool), purpose_(purpose), tensor_(tensor) {}
  Pool* pool_ = nullptr;
  size_t purpose_ = 0;  ///< The Pool's number for it.
  Tensor tensor_;
};

/// Memory of a running step: first fit, deterministic, so a step that allocates and frees in the
/// same order has its tensors at the same addresses each time (a captured step can be replayed).
class Pool {
 public:
  /// Plan mode: no limit; peak_bytes() is the result.
  Pool() = default;
  /// Allocates from `block` (uint8).
  explicit Pool(Tensor block);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// A tensor of undefined content. Errors: DeviceError naming `purpose` when nothing fits.
  PoolTensor take(std::string_view purpose, DType dtype, std::initializer_list<int64_t> shape);
  /// Bytes allocated now, and the highest end address ever used.
  int64_t used_bytes() const noexcept { return used_; }
  int64_t peak_bytes() const noexcept { return peak_; }
  /// What was allocated when the peak was reached, largest first: "name  MiB" lines.
  std::string report() const;
  /// Whether nothing is allocated. A step asserts this at its end.
  bool empty() const noexcept { return used_ == 0; }

 private:
  friend PoolTensor;
  /// Free bytes between allocated ones.
  struct Gap {
    int64_t offset, bytes;
  };
  size_t index_of(std::string_view purpose);
  void give(const Tensor& tensor, size_t purpose) noexcept;

  Tensor block_;
  std::vector<Gap> gaps_;  ///< By offset; no two touch, and none reaches end_.
  int64_t end_ = 0;        ///< Nothing is allocated from here on.
  std::vector<std::string> purposes_;
  std::vector<int64_t> now_, at_peak_;  ///< Bytes allocated for each purpose.
  int64_t used_ = 0;
  int64_t peak_ = 0;
};

}  // namespace ops
