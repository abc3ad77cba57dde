// CpuOps: construction, memory, fills, copies, initial values.
//
// SPDX-License-Identifier: MIT
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numbers>
#include <stdexcept>

#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/cpu/rows.h"
#include "trainer/ops/number.h"
#include "trainer/ops/philox.h"

namespace ops::cpu {
namespace {

constexpr int64_t kPiece = 1 << 15;

}  // namespace

CpuOps::CpuOps(int threads)
    : threads_(threads),
      allowed_(tbb::global_control::max_allowed_parallelism,
               static_cast<size_t>(std::max(threads, 64))),
      arena_(std::max(threads, 1)) {
  if (threads < 1)
    throw std::invalid_argument("cpu: " + std::to_string(threads) + " threads: at least 1");
}

std::unique_ptr<Ops> make_cpu_ops(int threads) { return std::make_unique<CpuOps>(threads); }

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

void CpuOps::fill(const Fill& a) {
  check(a, Device::cpu);
  if (a.value == 0) {
    std::memset(a.dst.data, 0, static_cast<size_t>(a.dst.bytes()));
  } else if (a.dst.dtype == DType::i32) {
    std::fill_n(a.dst.as<int32_t>(), a.dst.elements(), static_cast<int32_t>(a.value));
  } else {
    for (int64_t i = 0; i < a.dst.elements(); ++i) store(a.dst, i, a.value);
  }
}

void CpuOps::copy(const Copy& a) {
  check(a, Device::cpu);
  if (a.dst.dtype == a.src.dtype) {
    std::memcpy(a.dst.data, a.src.data, static_cast<size_t>(a.dst.bytes()));
    return;
  }
  pieces(a.dst.elements(), kPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) store(a.dst, i, load(a.src, i));
  });
}

void CpuOps::add(const Add& a) {
  check(a, Device::cpu);
  pieces(a.dst.elements(), kPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) store(a.dst, i, load(a.dst, i) + a.alpha * load(a.a, i));
  });
}

void CpuOps::normal_fill(const NormalFill& a) {
  check(a, Device::cpu);
  const int64_t columns = a.out.columns();
  const auto draw = [&](int64_t element) {
    const Philox4 words = philox(
        {static_cast<uint32_t>(element / 4), static_cast<uint32_t>((element / 4) >> 32), 0, 0},
        a.seed, a.stream);
    const bool second = element % 4 >= 2;
    const double u = ((second ? words.z : words.x) + 0.5) * 0x1p-32;
    const double angle = 2 * std::numbers::pi * ((second ? words.w : words.y) * 0x1p-32);
    return a.std * std::sqrt(-2 * std::log(u)) *
           (element % 2 == 0 ? std::cos(angle) : std::sin(angle));
  };
  pieces(a.out.elements(), kPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = a.first_row + i / columns;
      const int64_t column = a.first_column + i % columns;
      store(a.out, i, static_cast<float>(draw(row * a.whole_columns + column)));
    }
  });
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
