// Exchange: reduces numbers of the host over all ranks outside of a step, and owns the device
// memory that this needs. May include: engine/options.h, parallel/groups.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/engine/parameters.h"
#include "trainer/parallel/groups.h"

namespace trainer {

/// See the room card.
class Exchange {
 public:
  /// The most numbers that over_ranks() accepts.
  static constexpr int64_t kNumbers = 64;

  Exchange(const Setup& setup, ops::Arena& device);

  /// values[i] = sum or maximum over all ranks. Every rank calls it with the same number of values,
  /// at most kNumbers. Waits. Errors: ShapeError.
  void over_ranks(ops::Ops& ops, comm::Comm& world, std::span<float> values,
                  comm::Reduce reduce) const;
  /// Names of parameters of the whole model whose gradient contains a NaN or Inf, in table order,
  /// the same on every rank; every rank calls it. Waits.
  std::vector<std::string> nonfinite_gradients(ops::Ops& ops, comm::Comm& world,
                                               const std::vector<ParamView>& views) const;

 private:
  const ModelSpec& spec_;
  Tensor count_, numbers_, flags_;
};

}  // namespace trainer
