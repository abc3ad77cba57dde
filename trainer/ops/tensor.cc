// Tensor: shapes, slices and their checks.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/tensor.h"

#include <string>

namespace ops {
namespace {

std::string shape_text(std::initializer_list<int64_t> shape) {
  std::string text = "(";
  const char* comma = "";
  for (int64_t n : shape) {
    text += comma + std::to_string(n);
    comma = ", ";
  }
  return text + ")";
}

}  // namespace

const char* name(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
      return "fp32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "fp16";
    case DType::i32:
      return "int32";
    case DType::i64:
      return "int64";
    case DType::u8:
      return "uint8";
    case DType::e4m3:
      return "e4m3";
    case DType::e5m2:
      return "e5m2";
  }
  return "?";
}

const char* name(Device device) noexcept {
  switch (device) {
    case Device::cpu:
      return "cpu";
    case Device::cuda:
      return "cuda";
    case Device::host:
      return "host";
    case Device::plan:
      return "plan";
  }
  return "?";
}

Tensor::Tensor(void* data_, DType dtype_, Device device_, std::initializer_list<int64_t> shape_)
    : data(data_), dtype(dtype_), device(device_) {
  if (shape_.size() > kMaxRank)
    throw ShapeError("tensor: shape " + shape_text(shape_) + ": more than 4 dimensions");
  for (int64_t n : shape_) {
    if (n < 0) throw ShapeError("tensor: shape " + shape_text(shape_) + ": negative dimension");
    shape[rank++] = n;
  }
}

Tensor Tensor::view(std::initializer_list<int64_t> new_shape) const {
  const Tensor result(data, dtype, device, new_shape);
  if (result.elements() != elements())
    throw ShapeError("tensor: view " + shape_text(new_shape) + " of " + describe() +
                     ": element counts differ");
  return result;
}

Tensor Tensor::slice(int64_t begin, int64_t count) const {
  if (rank == 0 || begin < 0 || count < 0 || begin + count > shape[0])
    throw ShapeError("tensor: slice " + std::to_string(begin) + " + " + std::to_string(count) +
                     " of " + describe() + ": out of range");
  Tensor result = *this;
  result.shape[0] = count;
  const int64_t entry_bytes = shape[0] == 0 ? 0 : bytes() / shape[0];
  result.data = static_cast<std::byte*>(data) + begin * entry_bytes;
  return result;
}

std::string Tensor::describe() const {
  std::string text = std::string(name(dtype)) + " (";
  for (int i = 0; i < rank; ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + ")";
}

void Tensor::require(DType wanted) const {
  if (wanted != dtype)
    throw ShapeError("tensor: " + describe() + ": " + name(wanted) + " wanted here");
}

}  // namespace ops
