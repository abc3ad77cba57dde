// CPU: parts of weights in flat memory, quantized, and the transpose of a quantized matrix.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/fp8_flat.h"

#include <algorithm>

#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/cpu/fp8_values.h"
#include "trainer/ops/launch.h"

namespace ops::cpu {
namespace {

constexpr int64_t kPiece = 4096;
constexpr int64_t kColumnPiece = 16;

template <DType kDType>
void round_flat(CpuOps& cpu, const QuantizeFlat& a) {
  const float factor = a.scale.as<float>()[kScaleFactor];
  const float* x = a.x.as<float>();
  auto* out = static_cast<uint8_t*>(a.out.data);
  cpu.pieces(a.x.elements(), kPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = scaled<kDType>(x[i], factor);
  });
}

}  // namespace

int64_t scratch_bytes(CpuOps&, const QuantizeFlat&) { return 0; }

void launch(CpuOps& cpu, const QuantizeFlat& a) {
  if (a.amax) {
    float& amax = *a.amax.as<float>();
    amax = largest_magnitude(a.x.as<float>(), a.x.elements(), amax);
  }
  if (!a.out) return;
  if (a.out.dtype == DType::e4m3)
    round_flat<DType::e4m3>(cpu, a);
  else
    round_flat<DType::e5m2>(cpu, a);
}

int64_t scratch_bytes(CpuOps&, const TransposeFp8&) { return 0; }

void launch(CpuOps& cpu, const TransposeFp8& a) {
  const int64_t rows = a.rows.rows(), columns = a.rows.columns();
  const auto* from = static_cast<const uint8_t*>(a.rows.data);
  auto* to = static_cast<uint8_t*>(a.columns.data);
  cpu.pieces(columns, kColumnPiece, [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = begin; c < end; ++c) to[c * rows + r] = from[r * columns + c];
  });
}

}  // namespace ops::cpu

template struct ops::Launch<ops::cpu::CpuOps, ops::QuantizeFlat>;
template struct ops::Launch<ops::cpu::CpuOps, ops::TransposeFp8>;
