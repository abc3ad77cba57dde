// Tensor: a view of memory on one device. The vocabulary that trainer/ops, trainer/comm and
// everything above them share. Here: DType, Device, Tensor, Mark, and the errors of the trainer's
// rooms. Not here: memory (arena.h), operations (ops.h), collectives (comm/comm.h). May include:
// the C++ library only. Shapes are counted in elements, outermost dimension first, and a Tensor is
// always contiguous: a slice of the first dimension is a Tensor again, other slices are not.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>

namespace ops {

/// A shape, dtype or device is not what the operation's docstring says; the message names both.
class ShapeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The device, its driver or one of its libraries failed; the message names call, file and line.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The device itself is broken or lost, whatever the call was.
class DeviceFault : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

/// Element types.
enum class DType : uint8_t { f32, bf16, f16, i32, i64, u8, e4m3, e5m2 };
/// Where the bytes are: `plan` is nowhere (PlanOps), `host` is page-locked memory next to a GPU.
enum class Device : uint8_t { cpu, cuda, host, plan };

/// Bytes of one element.
constexpr int64_t size_bytes(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::i64:
      return 8;
    case DType::u8:
    case DType::e4m3:
    case DType::e5m2:
      return 1;
  }
  return 0;
}
/// "fp32", "bf16", "fp16", "int32", "int64", "uint8", "e4m3", "e5m2".
const char* name(DType dtype) noexcept;
const char* name(Device device) noexcept;

/// A view of contiguous memory: pointer, shape, dtype, device. It never owns; copying it copies no
/// data. An empty Tensor (data == nullptr) stands for "absent" wherever an operation calls a tensor
/// optional.
struct Tensor {
  static constexpr int kMaxRank = 4;

  void* data = nullptr;
  DType dtype = DType::f32;
  Device device = Device::cpu;
  int rank = 0;
  int64_t shape[kMaxRank] = {0, 0, 0, 0};

  Tensor() = default;
  Tensor(void* data, DType dtype, Device device, std::initializer_list<int64_t> shape);

  explicit operator bool() const noexcept { return data != nullptr; }
  int64_t elements() const noexcept {
    int64_t count = 1;
    for (int i = 0; i < rank; ++i) count *= shape[i];
    return count;
  }
  int64_t bytes() const noexcept { return elements() * size_bytes(dtype); }
  /// The last dimension, and the product of all before it: a Tensor seen as a matrix (rows,
  /// columns).
  int64_t columns() const noexcept { return rank == 0 ? 1 : shape[rank - 1]; }
  int64_t rows() const noexcept { return columns() == 0 ? 0 : elements() / columns(); }

  /// The same bytes under another shape of equally many elements. Errors: ShapeError.
  Tensor view(std::initializer_list<int64_t> new_shape) const;
  /// `count` entries of the first dimension from `begin` on. Errors: ShapeError when out of range.
  Tensor slice(int64_t begin, int64_t count) const;
  /// As a vector of all elements.
  Tensor flat() const { return view({elements()}); }
  /// Host code's typed pointer. Errors: ShapeError when T's dtype differs.
  template <class T>
  T* as() const {
    require(dtype_of(static_cast<T*>(nullptr)));
    return static_cast<T*>(data);
  }
  /// "bf16 (1024, 4, 768)", for messages.
  std::string describe() const;

 private:
  static DType dtype_of(const float*) noexcept { return DType::f32; }
  static DType dtype_of(const int32_t*) noexcept { return DType::i32; }
  static DType dtype_of(const int64_t*) noexcept { return DType::i64; }
  static DType dtype_of(const uint8_t*) noexcept { return DType::u8; }
  /// bf16 and fp16 bits.
  static DType dtype_of(const uint16_t*) noexcept { return DType::bf16; }
  void require(DType wanted) const;
};

/// A point in a queue of work: when it is reached, everything queued before the call of mark() is
/// done. Ops::mark and Comm::mark make one; Ops::follow and Comm::follow make a queue wait for it
/// without blocking the host. The default Mark is always reached. A Mark is valid until its maker
/// has made 1024 more.
struct Mark {
  void* event = nullptr;
  uint64_t serial = 0;
  /// Blocks the calling thread until the point is reached; null when it has been reached already.
  void (*wait_on_host)(const Mark&) = nullptr;
};

}  // namespace ops

namespace trainer {
using ops::Device;
using ops::DeviceError;
using ops::DType;
using ops::ShapeError;
using ops::Tensor;
}  // namespace trainer
