// Muon: momentum, and for each matrix the nearest semi-orthogonal one, by a Newton-Schulz iteration
// of matrix products, as the direction of its step. Not here: the operations (ops/muon.h,
// ops/product.h), what is a matrix (spec/params.h), who updates which (parallel/matrix_packing.h),
// all other parameters (optimizer.h). May include: what optimizer.h may.
// Source: Jordan et al. 2024, "Muon"; Liu et al. 2025, "Muon is scalable for LLM training" (scale);
// NVIDIA Emerging-Optimizers, muon_utils.py, and Megatron-LM core/optimizer/emerging_optimizers.py,
// whose numbers these are.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "trainer/ops/muon.h"
#include "trainer/optim/optimizer.h"

namespace trainer {

/// a, b, c of step `step`, counted from 0: X becomes a X + (b A + c A A) X with A = X X^T. After
/// the last of a list, polar_express and cans stay with it, the others begin again.
std::array<float, 3> coefficients(MuonCoefficients kind, int step) noexcept;

/// What an orthogonalised matrix of (out, in) is multiplied by, extra_scale included.
float muon_scale(const MuonOptions& options, int64_t out, int64_t in) noexcept;

/// The rows of a parameter of `rows` rows that are matrices of their own: three of packed q, k and
/// v where they are split, else all. Gate and up of swiglu are one matrix, as in Megatron.
std::vector<ops::RowPart> muon_parts(const MuonOptions& options, const ParamSpec& spec,
                                     int64_t rows);

/// Queues the update of this rank's matrices in `bucket`. Takes scratch memory from the pool and
/// gives all of it back.

void update_matrices(const Update& u, int bucket);

}  // namespace trainer
