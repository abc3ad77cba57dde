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
#include <span>
#include <string>
#include <vector>

#include "trainer/ops/cpu/amx_gemm.h"
#include "trainer/ops/cpu/gemm.h"
#include "trainer/ops/cpu/lane_sums.h"
#include "trainer/ops/ops.h"

namespace ops::cpu {

/// The CPU backend; `threads` share each operation.
class CpuOps final : public Ops {
 public:
  /// Errors: std::invalid_argument when threads < 1.
  explicit CpuOps(int threads);

  Device device() const override { return Device::cpu; }
  std::string describe() const override;
  bool quantizes_norms() const override { return true; }
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
  /// Computes the product in parts and calls after(part) when a part is done. Takes the workspace
  /// if takes_amx().
  template <class After>
  void multiply(const Product& product, const After& after) {
    multiply_parts(std::span(&product, 1), 0, after);
  }
  /// The same for products that differ only in b, n and c; a part's columns are counted through all
  /// of them. The first `kept` bytes of the workspace, a multiple of 64, are the caller's, who has
  /// asked for them and product_scratch_bytes() together.
  template <class After>
  void multiply(std::span<const Product> products, int64_t kept, const After& after) {
    if (products.size() == 1 && LaneSums::takes(products.front()))
      multiply_lanes(products.front(), kept, after);
    else
      multiply_parts(products, kept, after);
  }
  /// What those products take of the workspace, given one with the columns of all.
  int64_t product_scratch_bytes(const Product& product) const noexcept {
    if (LaneSums::takes(product)) return LaneSums::bytes(product);
    if (!takes_amx(product)) return 0;
    return concurrency() * SplitRows::kScratchBytes +
           SplitRows::bytes(std::min(product.m, SplitRows::kMostRows), product.k);
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
  /// A part of one of several products, with columns counted through all of them.
  struct Share {
    Product product;
    Part part;
  };
  /// The parts of products by shape, and of `rows` of their rows by the number of threads.
  static std::vector<Share> parts_of(std::span<const Product> products);
  std::vector<Share> columns_of(std::span<const Product> products, int64_t row, int64_t rows) const;
  template <class After>
  void multiply_parts(std::span<const Product> products, int64_t kept, const After& after) {
    const Product& one = products.front();
    if (!takes_amx(one)) {
      share(parts_of(products), after, [](const Product& part, int64_t) { cpu::multiply(part); });
      return;
    }
    std::byte* const memory = workspace(kept + product_scratch_bytes(one)) + kept;
    std::byte* const packed = memory + concurrency() * SplitRows::kScratchBytes;
    // The left side is split once for all products.
    for (int64_t row = 0; row < one.m; row += SplitRows::kMostRows) {
      const int64_t rows = std::min(SplitRows::kMostRows, one.m - row);
      const SplitRows split(one.a.from(row, 0), rows, one.k, packed);
      parallel(split.panels(), [&](int64_t i) { split.pack(i); });
      share(columns_of(products, row, rows), after, [&](const Product& part, int64_t thread) {
        split.multiply(part, memory + thread * SplitRows::kScratchBytes);
      });
    }
  }
  /// For a product that LaneSums takes.
  template <class After>
  void multiply_lanes(const Product& product, int64_t kept, const After& after) {
    const LaneSums sums(product, workspace(kept + product_scratch_bytes(product)) + kept);
    // Whole rows, unless there are many threads.
    const int64_t groups = LaneSums::kGroups, most = product.n / LaneSums::kFewestColumns;
    const int64_t strips = std::clamp<int64_t>(concurrency() / groups, 1, most);
    const int64_t width = (product.n / strips + 63) / 64 * 64;
    const auto columns = [&](int64_t first) { return std::min(width, product.n - first); };
    const int64_t count = (product.n + width - 1) / width;
    parallel(count * groups, [&](int64_t i) {
      sums.sum(i % groups, i / groups * width, columns(i / groups * width));
    });
    pieces(product.n, 4 * LaneSums::kFewestColumns, [&](int64_t begin, int64_t end) {
      sums.finish(begin, end - begin);
      after(Part{0, product.m, begin, end - begin});
    });
  }
  template <class After, class Multiply>
  void share(const std::vector<Share>& shares, const After& after, const Multiply& multiply) {
    parallel(static_cast<int64_t>(shares.size()), [&](int64_t i) {
      const Share& share = shares[static_cast<size_t>(i)];
      const bool alone = shares.size() == 1;  // and on any thread
      multiply(share.product, alone ? 0 : tbb::this_task_arena::current_thread_index());
      after(share.part);
    });
  }

  int threads_;
  tbb::global_control allowed_;  ///< Without it oneTBB warns of more threads than cores.
  tbb::task_arena arena_;
  Tensor workspace_;
  std::vector<std::byte> own_workspace_;
};

}  // namespace ops::cpu
