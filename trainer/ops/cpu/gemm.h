// Matrix products in fp32: one thread's work; linear.cc and attention.cc share it out. Kernels for
// AVX-512, AVX2 and plain vectors are chosen by the processor. Not here: threads (cpu_ops.h), what
// the matrices are. May include: the C++ library. Every element is summed over k in one order that
// depends on k and on m (1 to 3, or more), so neither Parts nor threads nor b's order change a bit.
// Ours and not a BLAS: those that Debian ships know processors by name and fall back to SSE on
// newer ones, and none adds bias and activation while a part is in cache. One side may be bf16,
// which is widened to fp32 in registers: the result is that of the same numbers in fp32 but for the
// last bits, and half the memory is read, which is what a product of few rows waits for. Products
// of more rows with bf16 matrices: amx_gemm.h, where the processor has tiles.
// Source: Goto and van de Geijn 2008; Van Zee and van de Geijn 2015 (BLIS).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace ops::cpu {

/// A matrix that is only read: element (i, j) is data[i * row + j * column], and row or column
/// is 1. transposed() gives the same memory with i and j exchanged.
template <class T>
struct MatrixOf {
  const T* data = nullptr;
  int64_t row = 0, column = 1;
  MatrixOf transposed() const noexcept { return {data, column, row}; }
  MatrixOf from(int64_t i, int64_t j) const noexcept {
    return {data + i * row + j * column, row, column};
  }
};
using Matrix = MatrixOf<float>;
using Bf16Matrix = MatrixOf<uint16_t>;  ///< Of bf16's bits.

/// c (m, n) = alpha * a (m, k) b (k, n), added to what c holds where `add`. Rows of c are c_row
/// apart. c overlaps neither a nor b.
struct Product {
  int64_t m, n, k;
  Matrix a, b;
  float* c;
  int64_t c_row;
  float alpha = 1;
  bool add = false;
  Bf16Matrix b_bf16 = {};  ///< In place of b, where its data is not null.
};

/// Instruction sets that there are kernels for, slowest first.
enum class GemmLevel : uint8_t { plain, avx2, avx512 };
/// The best one of this processor.
GemmLevel best_gemm_level() noexcept;
/// "plain", "avx2", "avx512".
const char* name(GemmLevel level) noexcept;

/// Computes the product on the calling thread. `level` is at most the best one.
void multiply(const Product& product, GemmLevel level = best_gemm_level()) noexcept;

/// Rows and columns of a product: row .. row + rows - 1, column .. column + columns - 1.
struct Part {
  int64_t row, rows, column, columns;
};

/// How a product is split among threads, by its shape alone: into parts large enough for packing to
/// pay.
class Parts {
 public:
  Parts(int64_t m, int64_t n) noexcept;
  int64_t count() const noexcept { return down_ * across(); }
  Part at(int64_t i) const noexcept;

 private:
  int64_t across() const noexcept { return (n_ + columns_ - 1) / columns_; }
  int64_t m_, n_, rows_, columns_, down_;
};

/// The given part of a product.
Product part_of(const Product& product, const Part& part) noexcept;

}  // namespace ops::cpu
