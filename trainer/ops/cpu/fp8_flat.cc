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

/// body(begin, count, row, column) for each run of x that lies in one row of one block, by numbers
/// of blocks. Blocks of one row of blocks are done in turn, rows of blocks at the same time.
template <class Body>
void for_runs(CpuOps& cpu, const FlatPlace& place, int64_t elements, const Body& body) {
  const int64_t end = place.first + elements, high = kScaleBlock * place.columns;
  const int64_t first_block = place.first / high;
  cpu.parallel((end + high - 1) / high - first_block, [&](int64_t i) {
    const int64_t block = first_block + i;
    const int64_t stop = std::min(end, (block + 1) * high);
    for (int64_t at = std::max(place.first, block * high); at < stop;) {
      const int64_t column = at % place.columns;
      const int64_t of_block =
          std::min((column / kScaleBlock + 1) * kScaleBlock, place.columns) - column;
      const int64_t count = std::min(of_block, stop - at);
      body(at - place.first, count, block, column / kScaleBlock);
      at += count;
    }
  });
}

template <DType kDType>
void round_in_blocks(CpuOps& cpu, const QuantizeFlatInBlocks& a) {
  const float* x = a.x.as<float>();
  const float* amax = a.amax.as<float>();
  auto* out = static_cast<uint8_t*>(a.out.data);
  const int64_t across = a.place.column_blocks();
  for_runs(cpu, a.place, a.x.elements(),
           [&](int64_t begin, int64_t count, int64_t row, int64_t column) {
             const float factor =
                 factor_of_block(kDType, amax[row * across + column], a.margin, a.power_of_two);
             for (int64_t i = begin; i < begin + count; ++i) out[i] = scaled<kDType>(x[i], factor);
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

int64_t scratch_bytes(CpuOps&, const AmaxOfBlocks&) { return 0; }

void launch(CpuOps& cpu, const AmaxOfBlocks& a) {
  const float* x = a.x.as<float>();
  float* amax = a.amax.as<float>();
  const int64_t across = a.place.column_blocks();
  for_runs(cpu, a.place, a.x.elements(),
           [&](int64_t begin, int64_t count, int64_t row, int64_t column) {
             float& most = amax[row * across + column];
             most = largest_magnitude(x + begin, count, most);
           });
}

int64_t scratch_bytes(CpuOps&, const QuantizeFlatInBlocks&) { return 0; }

void launch(CpuOps& cpu, const QuantizeFlatInBlocks& a) {
  if (a.out.dtype == DType::e4m3)
    round_in_blocks<DType::e4m3>(cpu, a);
  else
    round_in_blocks<DType::e5m2>(cpu, a);
}

int64_t scratch_bytes(CpuOps&, const ScalesOfBlocks&) { return 0; }

void launch(CpuOps&, const ScalesOfBlocks& a) {
  float* rows = a.row_scale.as<float>();
  float* columns = a.column_scale.as<float>();
  const float* amax = a.amax.as<float>();
  std::fill_n(rows, a.row_scale.elements(), 0.0f);
  std::fill_n(columns, a.column_scale.elements(), 0.0f);
  for (int64_t r = 0; r < a.amax.shape[0]; ++r)
    for (int64_t c = 0; c < a.amax.shape[1]; ++c) {
      const float scale =
          1.0f / factor_of_block(a.dtype, amax[r * a.amax.shape[1] + c], a.margin, a.power_of_two);
      rows[r * a.row_scale.shape[1] + c] = scale;
      columns[c * a.column_scale.shape[1] + r] = scale;
    }
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
template struct ops::Launch<ops::cpu::CpuOps, ops::AmaxOfBlocks>;
template struct ops::Launch<ops::cpu::CpuOps, ops::QuantizeFlatInBlocks>;
template struct ops::Launch<ops::cpu::CpuOps, ops::ScalesOfBlocks>;
template struct ops::Launch<ops::cpu::CpuOps, ops::TransposeFp8>;
