// Exchange: reductions of host values.
//
// SPDX-License-Identifier: MIT
#include "trainer/engine/exchange.h"

#include <algorithm>

#include "trainer/engine/host_array.h"

namespace trainer {
namespace {

void reduce_over(ops::Ops& ops, comm::Comm& world, const Tensor& memory, std::span<float> values,
                 comm::Reduce reduce) {
  if (values.empty() || world.size() == 1) return;
  const Tensor part = memory.slice(0, static_cast<int64_t>(values.size()));
  upload_now(ops, part, values.data());
  await_collectives(ops, world, [&] { world.all_reduce(part, reduce); });
  download_now(ops, values.data(), part);
}

}  // namespace

Exchange::Exchange(const Setup& setup, ops::Arena& device) : spec_(setup.spec) {
  count_ = device.cut("state", DType::i64, {1});
  numbers_ = device.cut("state", DType::f32, {kNumbers});
  flags_ = device.cut("state", DType::f32, {count_param_rows(spec_)});
}

void Exchange::over_ranks(ops::Ops& ops, comm::Comm& world, std::span<float> values,
                          comm::Reduce reduce) const {
  if (static_cast<int64_t>(values.size()) > kNumbers)
    throw ShapeError("engine: " + std::to_string(values.size()) + " numbers over ranks: at most " +
                     std::to_string(kNumbers));
  reduce_over(ops, world, numbers_, values, reduce);
}

std::vector<std::string> Exchange::nonfinite_gradients(ops::Ops& ops, comm::Comm& world,
                                                       const std::vector<ParamView>& views) const {
  const std::vector<ParamSpec> table = param_table(spec_);
  std::vector<float> flags(table.size(), 0.0f);
  for (const ParamView& view : views) {
    if (!view.grad) continue;
    int64_t nonfinite = 0;
    ops.run(ops::CountNonfinite{.out = count_, .x = view.grad});
    download_now(ops, &nonfinite, count_);
    const auto row = std::find_if(table.begin(), table.end(), [&](const ParamSpec& param) {
      return param.name == view.param->spec.name;
    });
    if (nonfinite > 0) flags[static_cast<size_t>(row - table.begin())] = 1;
  }
  reduce_over(ops, world, flags_, flags, comm::Reduce::max);
  std::vector<std::string> names;
  for (size_t i = 0; i < table.size(); ++i)
    if (flags[i] > 0) names.push_back(table[i].name);
  return names;
}

}  // namespace trainer
