// The checks that every backend makes before it queues an operation: shapes, dtypes, devices, as
// the docstrings say. Not here: alignment or anything of one backend. May include: ops.h. Each
// throws ShapeError "operation: tensor: what it is: what is wanted".
//
// SPDX-License-Identifier: MIT
#pragma once

#include "trainer/ops/ops.h"

namespace ops {

/// Errors: ShapeError. `device` is where every tensor must be.
void check(const Fill& a, Device device);
void check(const Copy& a, Device device);
void check(const Add& a, Device device);
void check(const NormalFill& a, Device device);
void check(const EmbeddingForward& a, Device device);
void check(const EmbeddingBackward& a, Device device);
void check(const ResidualNormForward& a, Device device);
void check(const ResidualNormBackward& a, Device device);
void check(const LinearForward& a, Device device);
void check(const LinearBackwardInput& a, Device device);
void check(const LinearBackwardWeight& a, Device device);
void check(const ActivationForward& a, Device device);
void check(const ActivationBackward& a, Device device);
void check(const Rotary& a, Device device);
void check(const AttentionForward& a, Device device);
void check(const AttentionBackward& a, Device device);
void check(const AttentionDecode& a, Device device);
void check(const LossWeights& a, Device device);
void check(const CrossEntropy& a, Device device);
void check(const CrossEntropyStatistics& a, Device device);
void check(const CrossEntropyGradient& a, Device device);
void check(const AccumulateLoss& a, Device device);
void check(const StepInputs& a, Device device);
void check(const SumSquares& a, Device device);
void check(const JudgeGradients& a, Device device);
void check(const AdamW& a, Device device);
void check(const CountNonfinite& a, Device device);

/// An upper bound on what one call does: floating point operations, and bytes if every operand
/// moves once.
struct Cost {
  double flops = 0;
  double bytes = 0;
};
Cost cost(const AnyArgs& args);
/// "linear_forward": the method that takes these arguments.
const char* name(const AnyArgs& args) noexcept;

}  // namespace ops
