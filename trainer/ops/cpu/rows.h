// Loops over one row of floats, compiled for several instruction sets and chosen at start:
// exponentials, GELU. Not here: what the rows are (attention.cc, loss.cc, linear.cc). May include:
// the C++ library. Sums run in 16 lanes that are added at the end, so a row's result depends on
// its length alone. Different instruction sets may round differently; one machine always uses the
// same.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace ops::cpu {

/// Largest of x[0 .. n-1]; n >= 1. Elements that are NaN may be passed over.
float row_max(const float* x, int64_t n) noexcept;
/// y[i] = exp(x[i] - shift), and their sum. y may be x. Within 2 ulp of exp; a NaN gives NaN.
double row_exp_sum(float* y, const float* x, int64_t n, float shift) noexcept;
/// The sum alone.
double row_sum_of_exp(const float* x, int64_t n, float shift) noexcept;
/// x[i] *= factor.
void row_scale(float* x, int64_t n, float factor) noexcept;
/// y[i] = gelu_tanh(x[i]), y may be x.
void row_gelu_tanh(float* y, const float* x, int64_t n) noexcept;
/// d[i] *= gelu_tanh'(x[i]).
void row_gelu_tanh_backward(float* d, const float* x, int64_t n) noexcept;
/// y = silu(gate) * up.
void row_swiglu(float* y, const float* gate, const float* up, int64_t n) noexcept;

/// Which elements of a row are dropped, as ops/layer_args.h says, and what the others are
/// multiplied by.
struct RowDropout {
  uint32_t position, sample, iteration, seed, site;
  uint32_t threshold;  ///< dropout_threshold(p).
  float scale;         ///< dropout_scale(p).
};
/// Drops elements first .. first + n - 1 of a row; first is a multiple of 8.
void row_dropout(float* x, int64_t first, int64_t n, const RowDropout& dropout) noexcept;

}  // namespace ops::cpu
