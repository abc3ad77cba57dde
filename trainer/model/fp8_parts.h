// Fp8Parts: the weights that data-parallel ranks gather as FP8: their scales, which agree on all
// ranks that share a weight, and the rounding of this rank's parts. Not here: the gathering
// (parallel/weights.h), the weights in products (fp8.h). May include: ops/, comm/comm.h, spec/,
// parallel/. The scales are those that the whole weight would have, so its bytes are the same.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/model/fp8_options.h"
#include "trainer/parallel/flat_layout.h"

namespace trainer {

/// See the room card.
class Fp8Parts {
 public:
  /// A weight, and this rank's part of it.
  struct Part {
    const LocalParam* param = nullptr;
    Linear linear{};
    int64_t first = 0;  ///< Of x in the weight.
    Tensor x;           ///< (n) model dtype; empty if there is none here.
    // Filled by place().
    Tensor amax;                     ///< (1), or of each block.
    Tensor row_scale, column_scale;  ///< As in ops/fp8.h, of both layouts.
  };

  /// How many fp32 place() needs.
  int64_t list(const Fp8Options& options, std::vector<Part> parts);
  /// With one scale a weight: `scale` (4, L, 4) and `amax` (4, L), by linear and layer of the whole
  /// model. With scales of blocks: `memory`.
  void place(const Tensor& scale, const Tensor& amax, const Tensor& memory);

  bool empty() const noexcept { return parts_.empty(); }
  const std::vector<Part>& parts() const noexcept { return parts_; }
  /// Errors: ShapeError if it is not gathered as FP8.
  const Part& part_of(int64_t layer, Linear linear) const;

  /// Forgets largest values. Queued.
  void forget(ops::Ops& ops) const;
  /// Finds the scales of the parts in `unknown` from the values of all ranks of `data`. Queued.
  void find_scales(ops::Ops& ops, comm::Comm& data, const std::vector<const Part*>& unknown) const;
  /// out (n) e4m3 = x (n) rounded, where x is this rank's part of `param`. Delayed scaling also
  /// finds its largest value. Queued.
  void round(ops::Ops& ops, const LocalParam& param, const Tensor& x, const Tensor& out) const;

 private:
  bool in_blocks() const noexcept { return options_.in_blocks(); }
  ops::FlatPlace place_of(const Part& part) const noexcept;

  Fp8Options options_;
  std::vector<Part> parts_;
  Tensor all_scale_, all_amax_;  ///< Of all parts, and what else is between them.
};

}  // namespace trainer
