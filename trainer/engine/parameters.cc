// Parameters: their memory, views and initial values.
//
// SPDX-License-Identifier: MIT
#include "trainer/engine/parameters.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace trainer {

Parameters::Parameters(const Setup& setup, ops::Arena& device, ops::Arena& host)
    : setup_(setup),
      layout_(local_params(setup.spec, setup.places), setup.share.size > 1, setup.share.size,
              matrices_for(setup.options.optimizer,
                           setup.share.size > 1 ? setup.options.zero_stage : 0)),
      fp8_(fp8_flat()),
      flats_(cut(device, host)) {
  fp8_.cut(device, setup.options.model_dtype);
  views_.reserve(layout_.slots().size());
  for (const Slot& slot : layout_.slots()) views_.push_back(view_of(slot));
}

Fp8Flat Parameters::fp8_flat() const {
  if (!setup_.fp8_param_gather()) return {};
  const EngineOptions& options = setup_.options;
  std::vector<bool> gathered;
  for (const Slot& slot : layout_.slots())
    gathered.push_back(
        fp8_linear(options.fp8, setup_.spec.num_layers, slot.param.spec).has_value());
  return Fp8Flat(layout_, setup_.share, std::move(gathered), options.zero_stage < 3);
}

Flats Parameters::cut(ops::Arena& device, ops::Arena& host) const {
  using Hold = FlatMemory::Hold;
  using Buckets = FlatMemory::Buckets;
  const EngineOptions& options = setup_.options;
  /// Divided into shares from ZeRO stage `stage` on.
  const auto parts = [&](int stage, Hold shares, Buckets buckets = Buckets::all) {
    return FlatMemory::parts_of(layout_, options.zero_stage >= stage ? shares : Hold::whole,
                                setup_.spec.num_layers, buckets);
  };
  const auto flat = [&](ops::Arena& arena, const char* purpose, DType dtype,
                        std::vector<FlatMemory::Part> of) {
    FlatMemory memory(layout_, setup_.share, std::move(of));
    memory.place(arena.cut(purpose, dtype, {memory.elements()}));
    return memory;
  };
  ops::Arena& optimizer = options.cpu_offload ? host : device;
  Flats flats;
  std::vector<FlatMemory::Part> of_model = parts(3, Hold::layers);
  for (int b = 0; b < layout_.num_buckets(); ++b)
    if (fp8_.holds(b)) of_model[static_cast<size_t>(b)] = FlatMemory::Part::share;
  flats.model = flat(device, "model parameters", options.model_dtype, std::move(of_model));
  if (options.model_dtype == DType::f32 && !options.cpu_offload)
    flats.main = flats.model;
  else
    flats.main = flat(optimizer, "main parameters", DType::f32, parts(1, Hold::share));
  flats.grad = flat(device, "gradients", options.grad_dtype, parts(2, Hold::layers));
  for (const StateSpec& state : optimizer_states(options.optimizer))
    flats.states.push_back(flat(optimizer, state.purpose,
                                state.always_fp32 ? DType::f32 : options.moment_dtype,
                                parts(1, Hold::share, state.buckets)));
  return flats;
}

ParamView Parameters::view_of(const Slot& slot) const {
  const bool whole = !setup_.in_shares();
  const auto part = [&](const FlatMemory& flat) {
    return whole ? flat.whole(slot) : flat.range(slot);
  };
  const Range mine = layout_.in_share(slot, setup_.share);
  std::vector<StateView> states;
  states.reserve(flats_.states.size());
  for (size_t i = 0; i < flats_.states.size(); ++i)
    if (flats_.states[i].holds(slot.bucket))
      states.push_back(
          {optimizer_states(setup_.options.optimizer)[i].name, part(flats_.states[i])});
  const Topology& t = setup_.topology;
  const bool copy = (slot.param.spec.split < 0 && t.tensor_rank > 0) ||
                    (slot.param.spec.layer < 0 && !t.first_stage());
  return {.param = &slot.param,
          .model = flats_.model.holds_whole(slot.bucket) ? flats_.model.whole(slot)
                                                         : flats_.model.range(slot),
          .kept = whole ? Range{0, slot.param.elements()} : mine,
          .main = part(flats_.main),
          .states = std::move(states),
          .grad = part(flats_.grad),
          .saved = copy ? Range{} : mine};
}

void Parameters::clear_states(ops::Ops& ops) const {
  for (const FlatMemory& state : flats_.states)
    ops.run(ops::Fill{.dst = state.tensor(), .value = 0});
}

void Parameters::clear(ops::Ops& ops) const {
  for (const FlatMemory* flat : {&flats_.model, &flats_.main, &flats_.grad})
    ops.run(ops::Fill{.dst = flat->tensor(), .value = 0});
  for (const Tensor& gathered : {fp8_.bytes(), fp8_.others()})
    if (gathered) ops.run(ops::Fill{.dst = gathered, .value = 0});
  clear_states(ops);
}

void Parameters::copy_to_model(ops::Ops& ops) const {
  if (flats_.model.tensor().data == flats_.main.tensor().data) return;
  for (int b = 0; b < layout_.num_buckets(); ++b) {
    if (setup_.in_shares())
      ops.run(ops::Copy{.dst = flats_.model.share(b), .src = flats_.main.share(b)});
    else
      ops.run(ops::Copy{.dst = flats_.model.bucket(b), .src = flats_.main.bucket(b)});
  }
}

void Parameters::draw(ops::Ops& ops) const {
  for (const Slot& slot : layout_.slots()) draw(ops, slot);
  clear_states(ops);
}

/// Draws initial values of the part of a parameter that is kept here, by position in the whole
/// tensor.
void Parameters::draw(ops::Ops& ops, const Slot& slot) const {
  const ParamSpec& p = slot.param.spec;
  const Range kept =
      setup_.in_shares() ? layout_.in_share(slot, setup_.share) : Range{0, slot.param.elements()};
  if (kept.count == 0) return;
  const Tensor out = setup_.in_shares() ? flats_.main.range(slot) : flats_.main.whole(slot).flat();
  if (p.init == Init::zeros || p.init == Init::ones) {
    ops.run(ops::Fill{.dst = out, .value = p.init == Init::ones ? 1.0f : 0.0f});
    return;
  }
  // In turn: the rest of a row, whole rows up to the end of a part, the beginning of a row.
  const int64_t columns = slot.param.shape.back();
  const int64_t rows = slot.param.shape[0] / p.split_parts;
  for (int64_t at = kept.first; at < kept.first + kept.count;) {
    const int64_t row = at / columns, end = kept.first + kept.count;
    const int64_t part_end = (row / rows + 1) * rows * columns;
    int64_t count = std::min(end, (row + 1) * columns) - at;
    if (at % columns == 0)
      count = std::max(count, std::min(end, part_end) / columns * columns - at);
    const bool whole_rows = count % columns == 0;
    const Tensor flat = out.slice(at - kept.first, count);
    draw_rows(ops, slot, whole_rows ? flat.view({count / columns, columns}) : flat.view({1, count}),
              at);
    at += count;
  }
}

/// `out` begins at element `first` of the local parameter and lies within one of its parts.
void Parameters::draw_rows(ops::Ops& ops, const Slot& slot, const Tensor& out,
                           int64_t first) const {
  const ModelSpec& spec = setup_.spec;
  const EngineOptions& options = setup_.options;
  const ParamSpec& p = slot.param.spec;
  const float depth = std::sqrt(2.0f * static_cast<float>(spec.num_layers));
  const int64_t columns = slot.param.shape.back(), rows = slot.param.shape[0] / p.split_parts;
  const int64_t row = first / columns, part = row / rows;
  ops.run(ops::NormalFill{.out = out,
                          .std = p.init != Init::scaled_normal ? spec.init_method_std
                                 : options.output_init_std > 0 ? options.output_init_std
                                                               : spec.init_method_std / depth,
                          .seed = options.seed,
                          .stream = init_stream(p.name),
                          .whole_columns = p.shape.back(),
                          .first_row = part * (p.shape[0] / p.split_parts) + row % rows +
                                       (p.split == 0 ? slot.param.first : 0),
                          .first_column = first % columns + (p.split == 1 ? slot.param.first : 0)});
}

}  // namespace trainer
