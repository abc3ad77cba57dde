// Parameters: a rank's parameters, gradients and optimizer states in flat memory, as views for
// checkpoints, and their initial values. Not here: collectives over ranks (parallel/), updates
// (optim/). May include: engine/options.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "trainer/engine/options.h"
#include "trainer/ops/arena.h"

namespace trainer {

/// One state of a parameter's optimizer, by the name it has in checkpoints.
struct StateView {
  const char* name = "";
  Tensor tensor;
};

/// A parameter's tensors, for checkpoints: views that stay valid as long as the memory. They have
/// the local shape where the parameter is whole; otherwise they are the flat range of its elements
/// that this rank keeps (empty if it keeps none).
struct ParamView {
  const LocalParam* param = nullptr;
  Tensor model;  ///< Model dtype. With ZeRO 3 a layer's tensor is the range `kept`.
  Range kept;    ///< Range of main, states and grad: all or, from ZeRO 1 on, a share.
  Tensor main;   ///< fp32; the same memory as model when model dtype is fp32.
  std::vector<StateView> states;  ///< The optimizer's states.
  Tensor grad;
  Range saved;  ///< What this rank writes: each element is written by exactly one rank.
};

/// See the room card.
class Parameters {
 public:
  /// Allocates their memory: the optimizer's from `host` if it is offloaded, all else from
  /// `device`.
  Parameters(const Setup& setup, ops::Arena& device, ops::Arena& host);

  const FlatLayout& layout() const noexcept { return layout_; }
  const Flats& flats() const noexcept { return flats_; }
  /// What is gathered as FP8, and so is not whole in the flat memory of the model.
  const Fp8Flat& fp8() const noexcept { return fp8_; }
  const std::vector<ParamView>& views() const noexcept { return views_; }

  /// Queued: sets everything to 0.
  void clear(ops::Ops& ops) const;
  /// Queued: draws initial values of main parameters, by position in the whole model; states are 0.
  void draw(ops::Ops& ops) const;
  /// Queued: computes model parameters from main parameters, for what this rank updates.
  void copy_to_model(ops::Ops& ops) const;

 private:
  Fp8Flat fp8_flat() const;
  Flats cut(ops::Arena& device, ops::Arena& host) const;
  ParamView view_of(const Slot& slot) const;
  void clear_states(ops::Ops& ops) const;
  void draw(ops::Ops& ops, const Slot& slot) const;
  void draw_rows(ops::Ops& ops, const Slot& slot, const Tensor& out, int64_t first) const;

  const Setup& setup_;
  const FlatLayout layout_;
  Fp8Flat fp8_;
  const Flats flats_;
  std::vector<ParamView> views_;
};

}  // namespace trainer
