// Expect: the conditions that an operation's check puts on its tensors. Only the structs of
// operations use it. May include: tensor.h, step_state.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <initializer_list>
#include <string>

#include "trainer/ops/step_state.h"
#include "trainer/ops/tensor.h"

namespace ops {

/// Throws ShapeError "operation: tensor: what it is: what is wanted" from the first condition that
/// does not hold.
class Expect {
 public:
  Expect(const char* operation, Device device) : operation_(operation), device_(device) {}

  void that(bool holds, const char* why) const {
    if (!holds) throw ShapeError(std::string(operation_) + ": " + why);
  }
  void rank(const char* what, const Tensor& t, int rank) const {
    if (!t || t.rank != rank || t.device != device_)
      fail(what, t, std::to_string(rank) + " dimensions");
  }
  void dims(const char* what, const Tensor& t, std::initializer_list<int64_t> shape) const {
    const Tensor wanted(nullptr, t.dtype, device_, shape);
    bool same = bool(t) && t.rank == wanted.rank && t.device == device_;
    for (int i = 0; same && i < t.rank; ++i) same = t.shape[i] == wanted.shape[i];
    if (!same) fail(what, t, wanted.describe());
  }
  void shape(const char* what, const Tensor& t, DType dtype,
             std::initializer_list<int64_t> s) const {
    if (!t || t.dtype != dtype) fail(what, t, Tensor(nullptr, dtype, device_, s).describe());
    dims(what, t, s);
  }
  /// Any rank whose last dimension is `columns` and whose others multiply to `rows`.
  void matrix(const char* what, const Tensor& t, DType dtype, int64_t rows, int64_t columns) const {
    if (!t || t.device != device_ || t.dtype != dtype || t.rows() != rows || t.columns() != columns)
      fail(what, t, Tensor(nullptr, dtype, device_, {rows, columns}).describe());
  }
  void like(const char* what, const Tensor& t, const Tensor& model) const {
    bool same = bool(t) && t.dtype == model.dtype && t.rank == model.rank && t.device == device_;
    for (int i = 0; same && i < t.rank; ++i) same = t.shape[i] == model.shape[i];
    if (!same) fail(what, t, model.describe());
  }
  void model_dtype(const char* what, const Tensor& t) const {
    if (!is_float(t.dtype)) fail(what, t, "fp32, bf16 or fp16");
  }
  void grad_dtype(const char* what, const Tensor& t, DType model) const {
    if (!t || (t.dtype != DType::f32 && t.dtype != model)) fail(what, t, "fp32 or the model dtype");
  }
  void state(const char* what, const Tensor& t) const {
    shape(what, t, DType::u8, {static_cast<int64_t>(sizeof(StepState))});
  }
  static bool is_float(DType dtype) noexcept {
    return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
  }
  [[noreturn]] void fail(const char* what, const Tensor& t, const std::string& wanted) const {
    const std::string is = t ? t.describe() + " on " + name(t.device) : "absent";
    throw ShapeError(std::string(operation_) + ": " + what + ": " + is + ": " + wanted + " on " +
                     name(device_) + " wanted");
  }

 private:
  const char* operation_;
  Device device_;
};

}  // namespace ops
