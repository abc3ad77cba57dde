// The runs of whole models in the golden of tests/reference/make_muon_goldens.py.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <ostream>
#include <vector>

#include "tests/trainer/model/model_golden.h"

namespace golden {

/// A run of the goldens.
struct MuonCase {
  const char* name;
  const char* family;
  MuonOptions muon;
};
inline void PrintTo(const MuonCase& run, std::ostream* out) { *out << run.name; }
inline constexpr MuonOptions kTorchMuon{.momentum = 0.95f,
                                        .nesterov = true,
                                        .split_qkv = false,
                                        .coefficients = MuonCoefficients::simple,
                                        .extra_scale = 0.2f,
                                        .product_dtype = DType::f32};
inline constexpr MuonOptions kMegatronMuon{.product_dtype = DType::f32};

inline std::vector<MuonCase> muon_cases() {
  MuonOptions original = kTorchMuon, rms = kMegatronMuon, shape = kMegatronMuon;
  original.momentum = 0.9f;
  original.nesterov = false;
  original.scale = MuonScale::shape_scaling;
  original.extra_scale = 1;
  rms.scale = MuonScale::unit_rms_norm;
  rms.nesterov = true;
  shape.scale = MuonScale::shape_scaling;
  shape.split_qkv = false;
  return {{"torch_gpt2", "gpt2", kTorchMuon},
          {"torch_llama", "llama", original},
          {"megatron_gpt2", "gpt2", kMegatronMuon},
          {"megatron_llama", "llama", rms},
          {"megatron_gpt_neox", "gpt_neox", shape}};
}

}  // namespace golden
