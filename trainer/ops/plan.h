// PlanOps: the Ops that computes nothing. One step run over it, with Arena and Pool in plan mode,
// gives the bytes of every purpose, the flops and bytes of every operation, the list of calls that
// a backend can prepare, and, with times, a Timeline. Not here: choosing anything. May include:
// ops.h, timeline.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "trainer/ops/ops.h"
#include "trainer/ops/timeline.h"

namespace ops {

/// How long a call takes on the device that the plan is for.
class OperationTimes {
 public:
  virtual ~OperationTimes() = default;
  virtual CallTime time(const AnyCall& call) = 0;
};

/// Checks the arguments of every call, adds up costs, and asks `target` for workspace.
class PlanOps final : public Ops {
 public:
  /// `target` is the backend that will run; null when there is none.
  explicit PlanOps(Ops* target = nullptr) : target_(target) {}
  /// Writes what is queued into `timeline`, with durations from `times`. Adds up nothing.
  PlanOps(Timeline& timeline, OperationTimes& times) : timeline_(&timeline), times_(&times) {}

  /// Of all calls.
  Cost total() const noexcept { return total_; }
  int64_t most_workspace_bytes() const noexcept { return workspace_bytes_; }
  /// Every call, in order, with plan addresses; recorded only after keep_calls(true).
  void keep_calls(bool keep) noexcept { keep_calls_ = keep; }
  const std::vector<AnyArgs>& calls() const noexcept { return calls_; }

  Device device() const override { return Device::plan; }
  std::string describe() const override { return "plan"; }
  bool quantizes_norms() const override {
    return target_ != nullptr ? target_->quantizes_norms() : kGpusQuantizeNorms;
  }
  int64_t free_bytes() const override { return INT64_MAX; }
  void* allocate(int64_t bytes) override;
  void release(void*) noexcept override {}
  void* allocate_host(int64_t bytes) override { return allocate(bytes); }
  void release_host(void*) noexcept override {}

  Mark mark() override { return timeline_ ? timeline_->mark(Queue::compute) : Mark(); }
  void follow(const Mark& mark) override {
    if (timeline_) timeline_->follow(Queue::compute, mark);
  }
  void wait(const Mark&) override {}
  void synchronize() override {}
  void upload(Tensor, const void*) override {}
  void download(void*, Tensor) override {}

 private:
  void run_call(const AnyCall& call) override;
  int64_t scratch_of(const AnyCall&) override { return 0; }

  Ops* target_ = nullptr;
  Timeline* timeline_ = nullptr;
  OperationTimes* times_ = nullptr;
  Cost total_;
  std::vector<AnyArgs> calls_;
  bool keep_calls_ = false;
  int64_t workspace_bytes_ = 0;
  int64_t allocated_ = 0;
};

}  // namespace ops
