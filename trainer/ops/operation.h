// Operation: a struct of arguments that gives its name, checks itself and knows its cost. Each
// family of structs has one header (embedding.h, norm.h, linear.h, activation.h, attention.h,
// head_norm.h, loss.h, optimizer.h, elementwise.h), each with backend files of the same name in
// cpu/ and cuda/. ops.h builds the interface from them. Not here: how a backend defines one
// (launch.h). To add an operation: its struct, and its name in the family at the end of that
// header; launch() and scratch_bytes() in a file of each backend; a test. If any of these is
// missing, the build fails.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <variant>

#include "trainer/ops/expect.h"
#include "trainer/ops/tensor.h"

// Letters in the families: S sequence, B micro-batch, R = S*B rows, H hidden, F ffn hidden, N query
// heads, G key/value groups, D head size, V vocabulary rows held here. On a tensor-parallel rank
// these are the rank's own counts. "model dtype" is fp32, bf16 or fp16, one for all activations and
// model parameters of a model; sums, softmax, norms and all statistics are fp32. "grad dtype" is
// fp32 or the model dtype. Optional tensors may be empty. "+=" where `accumulate`, "=" where not:
// the first micro-batch of a step passes accumulate = false, so gradients are never zeroed.
namespace ops {

/// An upper bound on what one call does: floating point operations, and bytes if every operand
/// moves once.
struct Cost {
  double flops = 0;
  double bytes = 0;
};

/// Bytes of those tensors that are not empty; elements of one tensor. For costs.
inline double bytes_of(std::initializer_list<const Tensor*> tensors) noexcept {
  double bytes = 0;
  for (const Tensor* t : tensors)
    if (*t) bytes += static_cast<double>(t->bytes());
  return bytes;
}
inline double count(const Tensor& t) noexcept { return static_cast<double>(t.elements()); }

/// What the struct of an operation provides: the name in messages and tables; check(), which throws
/// ShapeError where tensors are not on `device` or not what their comments say; its cost.
template <class Args>
concept Operation = requires(const Args& args, Device device) {
  { Args::kName } -> std::convertible_to<const char*>;
  { args.check(device) } -> std::same_as<void>;
  { args.cost() } -> std::same_as<Cost>;
};

/// The operations of one header.
template <Operation... Args>
struct Family {};

/// The operations of several families: as values that can be kept, and as pointers to arguments
/// that live for one call.
template <class... Families>
struct Join;
template <class... Args>
struct Join<Family<Args...>> {
  using Values = std::variant<Args...>;
  using Pointers = std::variant<const Args*...>;
};
template <class... A, class... B, class... Rest>
struct Join<Family<A...>, Family<B...>, Rest...> : Join<Family<A..., B...>, Rest...> {};

/// What one backend does for one operation. Declared for every pair; launch.h has the bodies, and
/// the backend's file of the operation instantiates them, so a missing pair does not link, and a
/// pair without launch() or scratch_bytes() does not compile.
template <class Backend, Operation Args>
struct Launch {
  /// Checks, then queues. Errors: ShapeError, DeviceError.
  static void run(Backend& backend, const Args& args);
  /// Bytes of scratch memory that run() will want; may build and keep plans. Pointers in args are
  /// not followed.
  static int64_t scratch(Backend& backend, const Args& args);
};

}  // namespace ops
