// Vectors of fp32 numbers for the kernels of matrix products: GCC's vector types, loads that widen
// bf16, and the attributes of functions that may use an instruction set. Only gemm.cc and
// lane_sums.cc include it. May include: gemm.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cstdint>

#include "trainer/ops/cpu/gemm.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define TARGET_AVX512 __attribute__((target("avx512f,avx512vl")))
#define TARGET_AVX2 __attribute__((target("avx2,fma")))
#else
#define TARGET_AVX512
#define TARGET_AVX2
#endif

namespace ops::cpu {

/// A vector of kWidth fp32 numbers, and of the same bits, and of as many bf16 numbers.
template <int kWidth>
struct Vector {
  typedef float type __attribute__((vector_size(kWidth * 4), aligned(4), may_alias));
  typedef uint32_t bits __attribute__((vector_size(kWidth * 4)));
  typedef uint16_t halves __attribute__((vector_size(kWidth * 2), aligned(2), may_alias));
};

[[gnu::always_inline]] inline float widened(float x) noexcept { return x; }
[[gnu::always_inline]] inline float widened(uint16_t bf16) noexcept {
  return std::bit_cast<float>(uint32_t{bf16} << 16);
}

/// kWidth numbers from `from` on.
template <int kWidth>
[[gnu::always_inline]] inline void load(typename Vector<kWidth>::type& out,
                                        const float* from) noexcept {
  out = *reinterpret_cast<const typename Vector<kWidth>::type*>(from);
}
template <int kWidth>
[[gnu::always_inline]] inline void load(typename Vector<kWidth>::type& out,
                                        const uint16_t* from) noexcept {
  using V = Vector<kWidth>;
  out = reinterpret_cast<typename V::type>(
      __builtin_convertvector(*reinterpret_cast<const typename V::halves*>(from), typename V::bits)
      << 16);
}

/// `count` numbers from `from` on, fewer than kWidth, and zeros.
template <int kWidth, class T>
[[gnu::always_inline]] inline void load_part(typename Vector<kWidth>::type& out, const T* from,
                                             int64_t count) noexcept {
  float numbers[kWidth] = {};
  for (int64_t i = 0; i < count; ++i) numbers[i] = widened(from[i]);
  load<kWidth>(out, numbers);
}

/// An element of c from its sum over k. Adding to c is one rounding: whether a compiler joins the
/// product and the sum would otherwise differ from kernel to kernel.
[[gnu::always_inline]] inline void finish(const Product& p, float total, float& c) noexcept {
  c = p.add ? __builtin_fmaf(p.alpha, total, c) : p.alpha * total;
}

}  // namespace ops::cpu
