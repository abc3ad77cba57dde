// Times: how long an operation and a transfer take on a card, looked up in its table and
// interpolated between measured shapes. Not here: the table (card.h), the order of a step
// (simulation.h). May include: ops/, planning/card.h. Units: seconds, bytes.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "trainer/ops/plan.h"
#include "trainer/planning/card.h"

namespace trainer {

/// Operations on one card. A product's rate is that of a plain model of tiles and waves times the
/// ratio of measured to modelled rates of the shapes nearest to it (inverse distance in the
/// logarithms of its sizes), so a shape of the table has the measured time. One thread at a time.
class CardTimes final : public ops::OperationTimes {
 public:
  /// `host_state`: main parameters and moments are in host memory (--cpu-offload).
  CardTimes(const Card& card, bool host_state) : card_(card), host_state_(host_state) {}
  ops::CallTime time(const ops::AnyCall& call) override;

  /// Rows, outputs and inputs as ProductRate has them.
  double product(ProductKind kind, int64_t rows, int64_t outputs, int64_t inputs);
  double attention(bool backward, int64_t head_size, int64_t length, int64_t heads, double flops);
  double pass(const char* operation, double bytes);

 private:
  const Card& card_;
  bool host_state_;
  std::unordered_map<std::string, double> known_;  ///< Factors by shape.
};

/// Card::passes' name of QuantizeInBlocks: rows, whose columns need a pass of their own, and blocks
/// have different rates.
const char* pass_name_of(ops::Scaling scaling) noexcept;

/// The operations that a table's passes may name: "any", "bias_gradient", "quantize_in_rows", and
/// those of Ops that are timed by the bytes that they move.
std::vector<std::string> pass_operations();

/// How a group of ranks is distributed over hosts.
struct GroupPlaceOnHosts {
  int64_t ranks = 1;
  int64_t per_host = 1;  ///< Its ranks on one host.
  int64_t sharing = 1;   ///< Groups of this kind that use a host's network at the same time.
  bool copied = false;   ///< Its large transfers go by copy engines.
};

/// The most ranks of a group whose transfers go by copy engines, as comm::kMostSharing.
inline constexpr int64_t kMostCopying = 16;
/// Whether a data-parallel group's transfers can go by copy engines: it is on one host, small
/// enough, and the card's GPUs are linked.
bool can_copy(const Card& card, const GroupPlaceOnHosts& place) noexcept;

/// Seconds of a transfer of `bytes` (of the whole, gathered) in a group. Ring collectives: each
/// rank moves (n-1)/n of the bytes, all-reduce twice. Across hosts a group has its share of the
/// network.
double transfer_seconds(const Card& card, ops::Transfer kind, double bytes,
                        const GroupPlaceOnHosts& place);

}  // namespace trainer
