// CPU: fills, copies, sums and initial values.
//
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/launch.h"
#include "trainer/ops/number.h"
#include "trainer/ops/philox.h"

namespace ops::cpu {
namespace {

constexpr int64_t kPiece = 1 << 15;

}  // namespace

void launch(CpuOps&, const Fill& a) {
  if (a.value == 0) {
    std::memset(a.dst.data, 0, static_cast<size_t>(a.dst.bytes()));
  } else if (a.dst.dtype == DType::i32) {
    std::fill_n(a.dst.as<int32_t>(), a.dst.elements(), static_cast<int32_t>(a.value));
  } else {
    for (int64_t i = 0; i < a.dst.elements(); ++i) store(a.dst, i, a.value);
  }
}

void launch(CpuOps& cpu, const Copy& a) {
  if (a.dst.dtype == a.src.dtype) {
    std::memcpy(a.dst.data, a.src.data, static_cast<size_t>(a.dst.bytes()));
    return;
  }
  cpu.pieces(a.dst.elements(), kPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) store(a.dst, i, load(a.src, i));
  });
}

void launch(CpuOps& cpu, const Add& a) {
  cpu.pieces(a.dst.elements(), kPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) store(a.dst, i, load(a.dst, i) + a.alpha * load(a.a, i));
  });
}

void launch(CpuOps& cpu, const NormalFill& a) {
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
  cpu.pieces(a.out.elements(), kPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = a.first_row + i / columns;
      const int64_t column = a.first_column + i % columns;
      store(a.out, i, static_cast<float>(draw(row * a.whole_columns + column)));
    }
  });
}

int64_t scratch_bytes(CpuOps&, const Fill&) { return 0; }
int64_t scratch_bytes(CpuOps&, const Copy&) { return 0; }
int64_t scratch_bytes(CpuOps&, const Add&) { return 0; }
int64_t scratch_bytes(CpuOps&, const NormalFill&) { return 0; }

}  // namespace ops::cpu

template struct ops::Launch<ops::cpu::CpuOps, ops::Fill>;
template struct ops::Launch<ops::cpu::CpuOps, ops::Copy>;
template struct ops::Launch<ops::cpu::CpuOps, ops::Add>;
template struct ops::Launch<ops::cpu::CpuOps, ops::NormalFill>;
