// What Muon is asked for: plain data, for those who ask (engine/, session/). Not here: what it is
// (muon.h). May include: ops/tensor.h. Names and defaults are those of Megatron-LM's --muon-*.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "trainer/ops/tensor.h"

namespace trainer {

/// Who updates the layers' matrices. All other parameters have AdamW.
enum class OptimizerKind : uint8_t { adamw, muon };

/// What an orthogonalised matrix is multiplied by, of (out, in): sqrt(max(out, in)), sqrt(out /
/// in), sqrt(max(1, out / in)).
enum class MuonScale : uint8_t { spectral, unit_rms_norm, shape_scaling };

/// How a matrix that tensor-parallel ranks share is orthogonalised: each rank its part alone, all
/// ranks the whole, or all together, with sums over ranks.
enum class MuonTensorMode : uint8_t { blockwise, duplicated, distributed };

/// Polynomials of the iteration; see coefficients() in muon.h. aol is made for another norm than
/// Frobenius': a singular value above 0.87 of that one comes out with the other sign.
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
  DType product_dtype = DType::bf16;  ///< Of the matrix between products: bf16 or fp32.
  MuonTensorMode tensor_mode = MuonTensorMode::blockwise;
  /// Rows that a group of packed q, k and v has of queries, and of keys as of values.
  int64_t query_rows = 0, key_rows = 0;
};

}  // namespace trainer
