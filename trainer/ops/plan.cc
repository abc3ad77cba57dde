// PlanOps: adds up costs.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/plan.h"

#include <algorithm>

#include "trainer/ops/arena.h"

namespace ops {

void* PlanOps::allocate(int64_t bytes) {
  allocated_ += align_up(bytes);
  return reinterpret_cast<void*>(static_cast<uintptr_t>(kPlanBase + allocated_ - align_up(bytes)));
}

void PlanOps::run_call(const AnyCall& call) {
  if (times_ != nullptr) {
    const double flops = std::visit([](const auto* args) { return args->cost().flops; }, call);
    timeline_->compute(times_->time(call), flops);
    return;
  }
  std::visit(
      [this](const auto* args) {
        args->check(Device::plan);
        const Cost one = args->cost();
        total_.flops += one.flops;
        total_.bytes += one.bytes;
        if (target_ != nullptr)
          workspace_bytes_ = std::max(workspace_bytes_, target_->workspace_bytes(*args));
        if (keep_calls_) calls_.push_back(*args);
      },
      call);
}

}  // namespace ops
