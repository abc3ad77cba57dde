// Card: how fast a GPU is, as a table: products by shape, attention by heads,
// width and length, passes over memory by bytes, collectives by size and group. Read from and
// written to JSON (docs/format/card.5.md); for a card that was never measured, computed from its
// data sheet. Not here: looking a time up (times.h), measuring (calibration). May include: ops/.
// Rates are TFLOP/s, TB/s and GB/s with 10^12 and 10^9, as data sheets have them.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/ops/gpus.h"
#include "trainer/ops/timeline.h"

namespace trainer {

/// The products of a linear layer: its three, two with fused operations, and FP8's.
enum class ProductKind : uint8_t {
  forward,
  forward_activation,  ///< With bias and activation, keeping the activation's input.
  input,               ///< Gradient of the input,
  input_slope,         ///< times the activation's derivative, with the bias gradient.
  weight,              ///< Gradient of the weight, added to fp32.
  fp8,                 ///< Forward, or the gradient of the input, with operands in FP8,
  fp8_weight,          ///< and the gradient of the weight: operands with one scale,
  fp8_rows,            ///< with scales of rows (rowwise),
  fp8_rows_weight,
  fp8_blocks,  ///< with scales of blocks (blockwise).
  fp8_blocks_weight
};

constexpr bool in_fp8(ProductKind kind) noexcept { return kind >= ProductKind::fp8; }
/// Whether it is the gradient of the weight, which is added in fp32.
constexpr bool of_weight(ProductKind kind) noexcept {
  return kind == ProductKind::weight || kind == ProductKind::fp8_weight ||
         kind == ProductKind::fp8_rows_weight || kind == ProductKind::fp8_blocks_weight;
}

/// A product of `rows` rows and an (outputs, inputs) weight, of one kind.
struct ProductRate {
  ProductKind kind = ProductKind::forward;
  int64_t rows = 0, outputs = 0, inputs = 0;
  double tflops = 0;
};

/// Causal attention; flops count the half that is computed, backward 2.5 times forward's.
struct AttentionRate {
  int64_t head_size = 0, length = 0;
  int64_t heads = 0;  ///< Times samples.
  double forward_tflops = 0, backward_tflops = 0;
};

/// A pass over memory. `operation` is the operation's name; "any" for those not listed.
struct PassRate {
  std::string operation;
  double mib = 0;
  double tb_per_s = 0;
};

/// A collective among GPUs of one host; bus bandwidth, as NCCL's tests define it.
struct TransferRate {
  ops::Transfer kind = ops::Transfer::all_reduce;
  int64_t ranks = 0;
  double mib = 0;
  double gb_per_s = 0;
};

/// See the room card. Fields of one measurement or of a data sheet.
struct Card {
  std::string name, product;
  std::string source;     ///< The source of the figures, for the report: one line.
  bool measured = false;  ///< Whether products, attention and passes were measured, or follow from
                          ///< the data sheet.
  bool measured_transfers = false;
  double memory_gib = 0;  ///< Memory that a process can use when nothing else runs.
  double watts = 0, watts_waiting = 0;
  double peak_tflops = 0;  ///< From the data sheet, 16-bit without sparsity; MFU is relative to it.
  double memory_tb_per_s = 0;
  int64_t multiprocessors = 0;  ///< 0: a CPU; all products have one rate.
  double launch_us = 0;         ///< Shortest time of an operation in a captured step.
  /// Power that the card permits, beyond what it takes when idle, relative to that of a 16-bit
  /// product at full clock; rates are those at full clock. 0: rates are those at the limit, or
  /// there is none.
  double power_limit = 0;
  double fp32_share = 0.06;                     ///< Share of the 16-bit rate that a model in fp32
                                                ///< reaches.
  double host_gb_per_s = 0;                     ///< Between a GPU and its host's memory.
  double link_gb_per_s = 0, link_us = 0;        ///< Bus bandwidth and start time within a host.
  double network_gb_per_s = 0, network_us = 0;  ///< Of a host, one direction.
  double hidden_cost = 0;       ///< Compute time lost to a concurrent transfer, as a share of the
                                ///< transfer's time.
  double hidden_copy_cost = 0;  ///< The same, of a transfer by copy engines.
  double context_gib = 0;       ///< CUDA's context and libraries, of every process.
  double group_gib = 0;    ///< NCCL's memory for each group with collectives that a rank is in.
  double message_gib = 0;  ///< NCCL's memory for a group whose ranks send each other messages.
  double tensor_gib = 0;   ///< Additional, for each other rank of a tensor-parallel group.
  double peer_gib = 0;     ///< Additional, for each other rank of a data-parallel group whose
                           ///< transfers go by copy engines; 0: there are none.
  std::vector<ProductRate> products;
  std::vector<AttentionRate> attention;
  std::vector<PassRate> passes;
  std::vector<TransferRate> transfers;
  std::vector<TransferRate> copies;  ///< By copy engines.
};
/// Card::peer_gib, the most that was seen: bench/planning.md.
inline constexpr double kPeerGib = 0.1;
/// Fills what concerns copy engines as if they were not measured: a host's GPUs have them where
/// NVLink connects them.
void assume_copies(Card& card) noexcept;

/// From JSON text; `path` is named in errors. Errors: std::runtime_error "path: key: what is wrong"
/// for invalid JSON, or a key that is missing, unknown or out of range.
Card parse_card(std::string_view text, const std::string& path);
/// The JSON text of a card, one row per line.
std::string card_text(const Card& card);

/// The built-in table of this card, or one computed from its data sheet.
Card card_of(const ops::Gpu& gpu);
/// Finds a GPU by the name that CUDA gives a device ("NVIDIA H200"); null if unknown.
const ops::Gpu* find_product(std::string_view product);

/// Names of the enumerations' values in JSON.
const char* name_of(ProductKind kind) noexcept;
const char* name_of(ops::Transfer kind) noexcept;

}  // namespace trainer
