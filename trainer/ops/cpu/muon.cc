// CPU: Muon's momentum, matrices and update. Compiled without contraction to fused multiply-adds,
// like optimizer.cc.
//
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/launch.h"
#include "trainer/ops/number.h"

namespace ops::cpu {
namespace {

constexpr int64_t kPiece = 1 << 15;
constexpr int64_t kRowPiece = 32;

const StepState& state_of(const Tensor& state) {
  return *static_cast<const StepState*>(state.data);
}

/// body(place, element) for each element of a part: its place in the part's own memory and in the
/// matrix' memory.
template <class Body>
void each_element(CpuOps& cpu, const RowPart& part, const Tensor& matrix, bool transposed,
                  const Body& body) {
  const int64_t columns = matrix.shape[1], rows = part.rows_of(matrix.shape[0]);
  cpu.pieces(rows, kRowPiece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t row = part.row(r) * columns;
      for (int64_t c = 0; c < columns; ++c)
        body(transposed ? c * rows + r : r * columns + c, row + c);
    }
  });
}

}  // namespace

void launch(CpuOps& cpu, const MuonMomentum& a) {
  const StepState& s = state_of(a.state);
  if (s.skip != 0) return;
  float* momentum = a.momentum.as<float>();
  cpu.pieces(a.momentum.elements(), kPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float g = load(a.grad, i) * s.grad_multiplier;
      momentum[i] += (1.0f - a.beta) * (g - momentum[i]);
    }
  });
}

void launch(CpuOps& cpu, const MuonMatrix& a) {
  const float multiplier = state_of(a.state).grad_multiplier;
  const float* momentum = a.momentum.as<float>();
  float* out = a.out.as<float>();
  each_element(cpu, a.part, a.momentum, a.transposed, [&](int64_t place, int64_t element) {
    float value = momentum[element];
    if (a.grad) {
      const float g = load(a.grad, element) * multiplier;
      value = g + a.beta * (value - g);
    }
    out[place] = value;
  });
}

void launch(CpuOps& cpu, const MuonNormalize& a) {
  const float norm = std::max(std::sqrt(*a.sum_squares.as<float>()), a.eps);
  const float* x = a.x.as<float>();
  cpu.pieces(a.x.elements(), kPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) store(a.out, i, x[i] / norm);
  });
}

void launch(CpuOps& cpu, const MuonUpdate& a) {
  const StepState& s = state_of(a.state);
  if (s.skip != 0) return;
  const float decay = a.decays ? s.weight_decay : 0.0f;
  float* main = a.main.as<float>();
  each_element(cpu, a.part, a.main, a.transposed, [&](int64_t place, int64_t element) {
    main[element] -= s.lr * (a.scale * load(a.direction, place) + decay * main[element]);
    if (a.model) store(a.model, element, main[element]);
  });
}

int64_t scratch_bytes(CpuOps&, const MuonMomentum&) { return 0; }
int64_t scratch_bytes(CpuOps&, const MuonMatrix&) { return 0; }
int64_t scratch_bytes(CpuOps&, const MuonNormalize&) { return 0; }
int64_t scratch_bytes(CpuOps&, const MuonUpdate&) { return 0; }

}  // namespace ops::cpu

template struct ops::Launch<ops::cpu::CpuOps, ops::MuonMomentum>;
template struct ops::Launch<ops::cpu::CpuOps, ops::MuonMatrix>;
template struct ops::Launch<ops::cpu::CpuOps, ops::MuonNormalize>;
template struct ops::Launch<ops::cpu::CpuOps, ops::MuonUpdate>;
