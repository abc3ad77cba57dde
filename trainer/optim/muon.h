// Muon: each matrix's step goes in the direction of the semi-orthogonal matrix nearest to its
// momentum, found by a Newton-Schulz iteration of matrix products. Not here: the operations
// (ops/muon.h, ops/product.h), which parameters are matrices (spec/params.h), which rank updates
// which (parallel/matrix_packing.h), all other parameters (optimizer.h). May include: what
// optimizer.h may.
// Source: Jordan et al. 2024, "Muon"; Liu et al. 2025, "Muon is scalable for LLM training" (scale);
// NVIDIA Emerging-Optimizers, muon_utils.py, and Megatron-LM core/optimizer/emerging_optimizers.py,
// from which the numbers are taken.
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
/// the end of their list, polar_express and cans repeat the last entry; the others start again from
/// the first.
std::array<float, 3> coefficients(MuonCoefficients kind, int step) noexcept;

/// The factor for an orthogonalised (out, in) matrix, extra_scale included.
float muon_scale(const MuonOptions& options, int64_t out, int64_t in) noexcept;

/// The parts of a parameter of `rows` rows that are separate matrices: three for packed q, k and v
/// if they are split, otherwise all rows as one. Gate and up of swiglu are one matrix, as in
/// Megatron.
std::vector<ops::RowPart> muon_parts(const MuonOptions& options, const ParamSpec& spec,
                                     int64_t rows);

/// Queues the update of this rank's matrices in `bucket`. Allocates scratch memory from the pool
/// and frees all of it.

void update_matrices(const Update& u, int bucket);

}  // namespace trainer
