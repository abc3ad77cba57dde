// Pipeline: exchanges between stages.
//
// SPDX-License-Identifier: MIT
#include "trainer/engine/pipeline.h"

#include <utility>

namespace trainer {
namespace {

using Kind = Action::Kind;

/// Exchanges whose sends may still be pending before compute waits for the oldest.
constexpr size_t kExchangesUnderWay = 2;

}  // namespace

Pipeline::Pipeline(ops::Ops& ops, comm::Comm& stages, std::function<ops::PoolTensor()> take,
                   ComputeAction compute)
    : ops_(ops), stages_(stages), take_(std::move(take)), compute_(std::move(compute)) {}

void Pipeline::run(const std::vector<Action>& actions) {
  for (size_t i = 0; i < actions.size();) {
    size_t end = i + 1;
    if (!actions[i].sends() && !actions[i].receives()) {
      compute(actions[i]);
    } else {
      while (end < actions.size() && actions[end].joined) ++end;
      exchange(std::span(actions).subspan(i, end - i));
    }
    i = end;
  }
  while (!leaving_.empty()) finish_oldest();
}

/// The key of a send or a receive.
Pipeline::Key Pipeline::travels(const Action& a) {
  return {a.kind == Kind::send_backward || a.kind == Kind::receive_backward, a.chunk, a.microbatch};
}

ops::PoolTensor Pipeline::arrived(const Key& key) {
  auto found = arriving_.extract(key);
  if (found.empty()) return {};
  ops_.follow(found.mapped().mark);
  return std::move(found.mapped().tensor);
}

void Pipeline::compute(const Action& a) {
  const bool backward = a.kind != Kind::forward;
  const Key key{backward, a.chunk, a.microbatch};
  ops::PoolTensor in;
  if (a.kind != Kind::backward_weight) in = arrived(key);
  if (ops::PoolTensor out = compute_(a, std::move(in))) ready_[key] = std::move(out);
}

void Pipeline::exchange(std::span<const Action> actions) {
  if (leaving_.size() == kExchangesUnderWay) finish_oldest();
  std::vector<ops::PoolTensor> tensors;
  for (const Action& a : actions)
    tensors.push_back(a.sends() ? std::move(ready_.extract(travels(a)).mapped()) : take_());
  stages_.follow(ops_.mark());
  if (actions.size() > 1) stages_.group_begin();
  for (size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].sends())
      stages_.send(tensors[i], actions[i].peer);
    else
      stages_.receive(tensors[i], actions[i].peer);
  }
  if (actions.size() > 1) stages_.group_end();
  Leaving leaving{.mark = stages_.mark()};
  for (size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].sends())
      leaving.tensors.push_back(std::move(tensors[i]));
    else
      arriving_[travels(actions[i])] = {std::move(tensors[i]), leaving.mark};
  }
  leaving_.push_back(std::move(leaving));
}

void Pipeline::finish_oldest() {
  ops_.follow(leaving_.front().mark);
  leaving_.pop_front();
}

}  // namespace trainer
