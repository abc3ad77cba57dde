// Loops over one row of floats, compiled for several instruction sets and chosen at start:
// exponentials, GELU, norms, sums. Not here: what the rows are (attention.cc, loss.cc,
// linear.cc, norm.cc). May include: the C++ library. Sums run in 16 lanes that are added at the
// end, so a row's result depends on its length alone. Different instruction sets may round
// differently; one machine always uses the same.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

/// Has the compiler clone a function for AVX-512, AVX2 and plain x86-64.
/// Each function has one resolver, through the C library's ifunc. Sanitizers run before resolvers
/// do, so sanitizer builds get the plain version.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ROW_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ROW_CLONES
#endif

namespace ops::cpu {

/// Largest of x[0 .. n-1]; n >= 1. NaN elements may be ignored.
float row_max(const float* x, int64_t n) noexcept;
/// y[i] = exp(x[i] - shift), and their sum. y may be x. Within 2 ulp of exp; a NaN gives NaN.
double row_exp_sum(float* y, const float* x, int64_t n, float shift) noexcept;
/// The sum alone.
double row_sum_of_exp(const float* x, int64_t n, float shift) noexcept;
/// x[i] *= factor.
void row_scale(float* x, int64_t n, float factor) noexcept;
/// y[i] = gelu_tanh(x[i]), y may be x. Within 2 ulp of x.
void row_gelu_tanh(float* y, const float* x, int64_t n) noexcept;
/// d[i] *= gelu_tanh'(x[i]), which is within 4e-6.
void row_gelu_tanh_backward(float* d, const float* x, int64_t n) noexcept;
/// y = silu(gate) * up.
void row_swiglu(float* y, const float* gate, const float* up, int64_t n) noexcept;

/// Sum of x[i], and of (x[i] - center)^2, in double.
double row_sum(const float* x, int64_t n) noexcept;
double row_sum_of_squares(const float* x, int64_t n, double center) noexcept;
/// sums[i] += x[i].
void row_add(double* sums, const float* x, int64_t n) noexcept;

/// A row's statistics for a norm; RMSNorm's mean is 0.
struct RowMoments {
  float mean, rstd;
};
/// The moments of x, computed in double. `centered`: the mean is subtracted; rstd = 1 /
/// sqrt(variance + eps).
RowMoments row_moments(const float* x, int64_t n, bool centered, float eps) noexcept;
/// y = (x - mean) * rstd * weight + bias; bias may be null, y may be x.
void row_norm(float* y, const float* x, const float* weight, const float* bias, int64_t n,
              RowMoments moments) noexcept;
/// dweight[i] += dy[i] * normed x[i], dbias[i] += dy[i].
void row_norm_weights(double* dweight, double* dbias, const float* dy, const float* x, int64_t n,
                      RowMoments moments) noexcept;
/// dx = before + the gradient of row_norm's x from dy; before may be null, dx may be before or dy.
/// `centered` where the mean was subtracted.
void row_norm_backward(float* dx, const float* before, const float* dy, const float* x,
                       const float* weight, int64_t n, RowMoments moments, bool centered) noexcept;

/// Which elements of a row are dropped, as ops/dropout.h says, and what the others are
/// multiplied by.
struct RowDropout {
  uint32_t position, sample, iteration, seed, site;
  uint32_t threshold;  ///< dropout_threshold(p).
  float scale;         ///< dropout_scale(p).
};
/// Drops elements first .. first + n - 1 of a row; first is a multiple of 8.
void row_dropout(float* x, int64_t first, int64_t n, const RowDropout& dropout) noexcept;

}  // namespace ops::cpu
