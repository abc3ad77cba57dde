// CpuOps: threads, memory, and the dispatch of a call to its operation.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/cpu/cpu_ops.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "trainer/ops/cpu/rows.h"

namespace ops::cpu {

CpuOps::CpuOps(int threads)
    : threads_(threads),
      allowed_(tbb::global_control::max_allowed_parallelism,
               static_cast<size_t>(std::max(threads, 64))),
      arena_(std::max(threads, 1)) {
  if (threads < 1)
    throw std::invalid_argument("cpu: " + std::to_string(threads) + " threads: at least 1");
}

std::string CpuOps::describe() const {
  return "cpu, " + std::to_string(threads_) + (threads_ == 1 ? " thread, " : " threads, ") +
         name(best_gemm_level());
}

int64_t CpuOps::free_bytes() const {
  return int64_t{sysconf(_SC_AVPHYS_PAGES)} * int64_t{sysconf(_SC_PAGESIZE)};
}

void* CpuOps::allocate(int64_t bytes) {
  // On huge pages where the system gives them: fewer page faults, and misses of the TLB.
  constexpr int64_t kHugePage = int64_t{1} << 21;
  const int64_t unit = bytes >= kHugePage ? kHugePage : 1024;
  const size_t size = static_cast<size_t>((bytes + unit - 1) / unit * unit);
  void* block = std::aligned_alloc(static_cast<size_t>(unit), size);
  if (block != nullptr && unit == kHugePage) madvise(block, size, MADV_HUGEPAGE);
  if (block == nullptr)
    throw DeviceError("cpu: " + std::to_string(bytes) + " bytes: the system has no more memory");
  return block;
}

void CpuOps::release(void* block) noexcept { std::free(block); }

void CpuOps::set_workspace(Tensor workspace) {
  workspace_ = workspace;
  own_workspace_ = std::vector<std::byte>();
}

std::byte* CpuOps::workspace(int64_t bytes) {
  if (workspace_ && workspace_.bytes() >= bytes) return static_cast<std::byte*>(workspace_.data);
  if (own_workspace_.size() < static_cast<size_t>(bytes))
    own_workspace_.resize(static_cast<size_t>(bytes));
  return own_workspace_.data();
}

void CpuOps::upload(Tensor dst, const void* host) {
  std::memcpy(dst.data, host, static_cast<size_t>(dst.bytes()));
}

void CpuOps::download(void* host, Tensor src) {
  std::memcpy(host, src.data, static_cast<size_t>(src.bytes()));
}

void CpuOps::run_call(const AnyCall& call) {
  std::visit([this]<class Args>(const Args* args) { Launch<CpuOps, Args>::run(*this, *args); },
             call);
}

int64_t CpuOps::scratch_of(const AnyCall& call) {
  return std::visit(
      [this]<class Args>(const Args* args) { return Launch<CpuOps, Args>::scratch(*this, *args); },
      call);
}

std::vector<CpuOps::Share> CpuOps::parts_of(std::span<const Product> products) {
  std::vector<Share> shares;
  int64_t before = 0;
  for (const Product& product : products) {
    const Parts parts(product.m, product.n);
    for (int64_t i = 0; i < parts.count(); ++i) {
      const Part part = parts.at(i);
      shares.push_back(
          {part_of(product, part), {part.row, part.rows, before + part.column, part.columns}});
    }
    before += product.n;
  }
  return shares;
}

std::vector<CpuOps::Share> CpuOps::columns_of(std::span<const Product> products, int64_t row,
                                              int64_t rows) {
  std::vector<Share> shares;
  int64_t before = 0;
  for (const Product& product : products) {
    for (int64_t column = 0; column < product.n; column += kAmxColumns) {
      const Part part{row, rows, column, std::min(kAmxColumns, product.n - column)};
      shares.push_back({part_of(product, part), {row, rows, before + column, part.columns}});
    }
    before += product.n;
  }
  return shares;
}

void CpuOps::column_sums(float* out, const float* x, int64_t rows, int64_t columns,
                         bool accumulate) {
  constexpr int64_t kColumns = 64;
  pieces(columns, kColumns, [&](int64_t begin, int64_t end) {
    double sums[kColumns] = {};
    const int64_t width = end - begin;
    for (int64_t r = 0; r < rows; ++r) row_add(sums, x + r * columns + begin, width);
    for (int64_t c = 0; c < width; ++c)
      out[begin + c] = static_cast<float>(sums[c]) + (accumulate ? out[begin + c] : 0.0f);
  });
}

}  // namespace ops::cpu
