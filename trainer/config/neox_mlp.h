// GPT-NeoX's keys of the MLP, and what they come to: the activation, whether it is gated, and the
// width. Releases up to August 2024 have mlp_type, and llama's gated MLP by it; later ones have
// swiglu, and round widths. Not here: the keys' JSON, and biases (neox.cc).
// Source: GPT-NeoX, megatron/model/transformer.py: LLaMAParallelMLP, and ParallelMLP since its pull
// requests 1212 and 1276.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

namespace trainer::neox {

/// The largest size that is read; four times its square fits 64 bits.
inline constexpr int64_t kMostSize = int64_t{1} << 30;

/// What the configurations say; sizes are 0 where they say nothing, and at most kMostSize.
struct MlpKeys {
  std::string type;  ///< mlp_type; empty: not there.
  std::string activation = "gelu";
  bool bias_gelu_fusion = false;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t multiple_of = 0;      ///< mlp_multiple_of
  double expansion_factor = 0;  ///< 0 to kMostSize.
};

/// The MLP that GPT-NeoX builds of them, or why it is refused.
struct Mlp {
  std::string activation;  ///< As --activation takes it.
  int64_t width = 0;       ///< Inputs of the last linear; 0: the keys leave it open.
  std::string key, why;    ///< The key that cannot be honoured; its value and the reason.
};

/// The width is left open where it needs hidden_size, which is not there, and without a gate where
/// no key says a size: it is four times hidden_size then, as here.
Mlp mlp_of(const MlpKeys& keys);

}  // namespace trainer::neox
