// Muon's options: plain data, for the code that sets them (engine/, session/). Not here: the
// optimizer (muon.h). May include: ops/tensor.h. Names and defaults are those of Megatron-LM's
// --muon-*.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "trainer/ops/tensor.h"

namespace trainer {

/// The optimizer of the layers' matrices. All other parameters use AdamW.
enum class OptimizerKind : uint8_t { adamw, muon };

/// The factor for an orthogonalised (out, in) matrix: sqrt(max(out, in)), sqrt(out / in),
/// sqrt(max(1, out / in)).
enum class MuonScale : uint8_t { spectral, unit_rms_norm, shape_scaling };

/// How a matrix that is divided among tensor-parallel ranks is orthogonalised: each rank only its
/// part, each rank the whole matrix, or all ranks together, with sums over ranks.
enum class MuonTensorMode : uint8_t { blockwise, duplicated, distributed };

/// Polynomials of the iteration; see coefficients() in muon.h. aol is meant for another norm than
/// Frobenius': with the Frobenius norm, a singular value above 0.87 of it gets the opposite sign.
enum class MuonCoefficients : uint8_t { simple, quintic, polar_express, cans, aol };

/// See the room card.
struct MuonOptions {
  float momentum = 0.9f;
  bool nesterov = false;
  bool split_qkv = true;  ///< Queries, keys and values are three matrices.
  MuonCoefficients coefficients = MuonCoefficients::quintic;
  int steps = 5;
  MuonScale scale = MuonScale::spectral;
  float extra_scale = 1;
  DType product_dtype = DType::bf16;  ///< The matrix's dtype between products: bf16 or fp32.
  MuonTensorMode tensor_mode = MuonTensorMode::blockwise;
  /// Query rows per group of packed q, k and v, and key rows, which equal the value rows.
  int64_t query_rows = 0, key_rows = 0;
};

}  // namespace trainer
