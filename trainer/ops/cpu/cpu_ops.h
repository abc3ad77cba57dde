// CpuOps: every operation in plain fp32 loops; the reference that other backends are compared with.
// Here: the backend, and what its operations share. Not here: what an operation means (the headers
// of ops/), how it is computed (the file of the same name). May include: ops/, oneTBB. A loop is
// cut into pieces whose size depends on shapes alone, and each piece is summed in order by one
// thread. So results do not depend on the number of threads.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainer/ops/cpu/amx_gemm.h"
#include "trainer/ops/cpu/gemm.h"
#include "trainer/ops/ops.h"

namespace ops::cpu {

/// The CPU backend; `threads` share each operation.
class CpuOps final : public Ops {
 public:
  /// Errors: std::invalid_argument when threads < 1.
  explicit CpuOps(int threads);

  Device device() const override { return Device::cpu; }
  std::string describe() const override;
  int64_t free_bytes() const override;
  void* allocate(int64_t bytes) override;
  void release(void* block) noexcept override;
  void* allocate_host(int64_t bytes) override { return allocate(bytes); }
  void release_host(void* block) noexcept override { release(block); }
  void set_workspace(Tensor workspace) override;

  Mark mark() override { return {}; }
  void follow(const Mark& mark) override {
    if (mark.wait_on_host != nullptr) mark.wait_on_host(mark);
  }
  void wait(const Mark&) override {}
  void synchronize() override {}
  void upload(Tensor dst, const void* host) override;
  void download(void* host, Tensor src) override;

  // --- for the operations, in the files of this folder -------------------------------------------
  /// body(i) for i in 0 .. count-1, on this Ops' threads, in any order.
  template <class Body>
  void parallel(int64_t count, const Body& body) {
    if (count == 1) return body(int64_t{0});
    arena_.execute([&] { tbb::parallel_for(int64_t{0}, count, body); });
  }
  /// body(begin, end) over pieces of `piece` of 0 .. count-1.
  template <class Body>
  void pieces(int64_t count, int64_t piece, const Body& body) {
    parallel((count + piece - 1) / piece, [&](int64_t i) {
      body(i * piece, i * piece + piece < count ? i * piece + piece : count);
    });
  }
  /// Computes the product in parts and calls after(part) when a part is done.
  template <class After>
  void multiply(const Product& product, const After& after) {
    if (takes_amx(product)) return multiply_split(product, after);
    const Parts parts(product.m, product.n);
    parallel(parts.count(), [&](int64_t i) {
      const Part part = parts.at(i);
      cpu::multiply(part_of(product, part));
      after(part);
    });
  }
  /// The same for a product that takes_amx(). Takes the workspace.
  template <class After>
  void multiply_split(const Product& product, const After& after) {
    for (int64_t row = 0; row < product.m; row += SplitRows::kMostRows) {
      const int64_t rows = std::min(SplitRows::kMostRows, product.m - row);
      const Product band = part_of(product, {row, rows, 0, product.n});
      const SplitRows split(band.a, rows, band.k, workspace(SplitRows::bytes(rows, band.k)));
      parallel(split.panels(), [&](int64_t i) { split.pack(i); });
      pieces(product.n, kAmxColumns, [&](int64_t begin, int64_t end) {
        split.multiply(part_of(band, {0, rows, begin, end - begin}));
        after(Part{row, rows, begin, end - begin});
      });
    }
  }
  /// out[c] (+)= sum over rows of x (rows, columns).
  void column_sums(float* out, const float* x, int64_t rows, int64_t columns, bool accumulate);
  /// At least `bytes` of scratch memory: set_workspace's, or the Ops' own where that is too small.
  std::byte* workspace(int64_t bytes);

  int concurrency() const { return arena_.max_concurrency(); }

 protected:
  void run_call(const AnyCall& call) override;
  int64_t scratch_of(const AnyCall& call) override;

 private:
  int threads_;
  tbb::global_control allowed_;  ///< Without it oneTBB warns of more threads than cores.
  tbb::task_arena arena_;
  Tensor workspace_;
  std::vector<std::byte> own_workspace_;
};

}  // namespace ops::cpu
