// Fp8Options: the options of linears in eight bits, and which linears these are. Not here: what is
// done with them (fp8.h, fp8_parts.h). May include: ops/, spec/.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/ops/ops.h"
#include "trainer/spec/params.h"

namespace trainer {

/// The options, named as Megatron's --fp8-* flags.
struct Fp8Options {
  /// e4m3: everything; hybrid: gradients in e5m2.
  enum class Format : uint8_t { none, e4m3, hybrid };
  /// delayed: a tensor's scale follows its largest values in previous steps, so no extra pass is
  /// needed to find them. A tensor's first scale, and the first after a checkpoint without scales,
  /// is computed from the values themselves. tensorwise: always from the values themselves.
  /// rowwise: a scale for each token and each output, in the weight gradient's product for each
  /// feature, from their values. blockwise: a scale for 128 values of a row of inputs and
  /// gradients, and for 128x128 values of weights.
  enum class Recipe : uint8_t { delayed, tensorwise, rowwise, blockwise };
  Format format = Format::none;
  Recipe recipe = Recipe::delayed;
  int32_t margin = 0;           ///< Scales are 2^margin times smaller.
  int64_t history_length = 16;  ///< Previous steps that delayed scales consider.
  ops::AmaxChoice amax_choice = ops::AmaxChoice::max;
  bool power_of_two = true;      ///< Scales of rows and blocks are powers of two.
  bool weight_gradients = true;  ///< Their products too; otherwise these use the model dtype.
  int64_t plain_layers_at_start = 0, plain_layers_at_end = 0;  ///< Layers without FP8.
  /// Data-parallel ranks that each update a share of the weights gather these as FP8.
  bool param_gather = false;
  /// The norms before qkv and fc1 leave only their statistics, and the pass that rounds a linear's
  /// input applies them, where nothing else reads their output. Empty: as the device prefers
  /// (Ops::quantizes_norms). Changes no bit.
  std::optional<bool> fuse_norms = {};

  bool on() const noexcept { return format != Format::none; }
  /// Whether tensors have many scales, of rows or blocks, which follow from their own values.
  bool in_blocks() const noexcept {
    return recipe == Recipe::rowwise || recipe == Recipe::blockwise;
  }
};

/// A layer's linears.
enum class Linear : uint8_t { qkv, proj, fc1, fc2 };
inline constexpr int kNumLinears = 4;
/// The operands of a linear that are quantized.
enum class Operand : uint8_t { input, weight, gradient };

/// The linear of a weight in FP8; empty for other parameters, and layers without FP8.
std::optional<Linear> fp8_linear(const Fp8Options& options, int64_t num_layers,
                                 const ParamSpec& param) noexcept;
/// Why weights cannot be gathered as FP8 with these options; empty if they can, or are not.
std::string fp8_gather_refusal(const Fp8Options& options);

}  // namespace trainer
