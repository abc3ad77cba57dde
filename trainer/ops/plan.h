// PlanOps: the Ops that computes nothing. One step run over it, with Arena and Pool in plan mode,
// gives the bytes of every purpose, the flops and bytes of every operation, and the list of calls
// that a backend can prepare. Not here: choosing anything. May include: ops.h, check.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trainer/ops/check.h"
#include "trainer/ops/ops.h"

namespace ops {

/// Checks the arguments of every call, adds up costs, and asks `target` for workspace.
class PlanOps final : public Ops {
 public:
  struct Total {
    int64_t calls = 0;
    Cost cost;
  };

  /// `target` is the backend that will run; null when there is none.
  explicit PlanOps(Ops* target = nullptr) : target_(target) {}

  /// By operation name.
  const std::map<std::string, Total>& totals() const noexcept { return totals_; }
  Cost total() const noexcept;
  int64_t workspace_bytes() const noexcept { return workspace_bytes_; }
  /// Every call, in order, with plan addresses; kept only when asked for.
  void keep_calls(bool keep) noexcept { keep_calls_ = keep; }
  const std::vector<AnyArgs>& calls() const noexcept { return calls_; }

  Device device() const override { return Device::plan; }
  std::string describe() const override { return "plan"; }
  int64_t free_bytes() const override { return INT64_MAX; }
  void* allocate(int64_t bytes) override;
  void release(void*) noexcept override {}
  void* allocate_host(int64_t bytes) override { return allocate(bytes); }
  void release_host(void*) noexcept override {}
  using Ops::workspace_bytes;

  Mark mark() override { return {}; }
  void follow(const Mark&) override {}
  void wait(const Mark&) override {}
  void synchronize() override {}
  void upload(Tensor, const void*) override {}
  void download(void*, Tensor) override {}

  void fill(const Fill& a) override { note(a); }
  void copy(const Copy& a) override { note(a); }
  void add(const Add& a) override { note(a); }
  void normal_fill(const NormalFill& a) override { note(a); }
  void embedding_forward(const EmbeddingForward& a) override { note(a); }
  void embedding_backward(const EmbeddingBackward& a) override { note(a); }
  void residual_norm_forward(const ResidualNormForward& a) override { note(a); }
  void residual_norm_backward(const ResidualNormBackward& a) override { note(a); }
  void linear_forward(const LinearForward& a) override { note(a); }
  void linear_backward_input(const LinearBackwardInput& a) override { note(a); }
  void linear_backward_weight(const LinearBackwardWeight& a) override { note(a); }
  void activation_forward(const ActivationForward& a) override { note(a); }
  void activation_backward(const ActivationBackward& a) override { note(a); }
  void rotary(const Rotary& a) override { note(a); }
  void attention_forward(const AttentionForward& a) override { note(a); }
  void attention_backward(const AttentionBackward& a) override { note(a); }
  void attention_decode(const AttentionDecode& a) override { note(a); }
  void loss_weights(const LossWeights& a) override { note(a); }
  void cross_entropy(const CrossEntropy& a) override { note(a); }
  void cross_entropy_statistics(const CrossEntropyStatistics& a) override { note(a); }
  void cross_entropy_gradient(const CrossEntropyGradient& a) override { note(a); }
  void accumulate_loss(const AccumulateLoss& a) override { note(a); }
  void begin_step(const StepInputs& a) override { note(a); }
  void sum_squares(const SumSquares& a) override { note(a); }
  void judge_gradients(const JudgeGradients& a) override { note(a); }
  void adamw(const AdamW& a) override { note(a); }
  void count_nonfinite(const CountNonfinite& a) override { note(a); }

 private:
  template <class Args>
  void note(const Args& args) {
    check(args, Device::plan);
    add_up(AnyArgs(args));
  }
  void add_up(const AnyArgs& args);

  Ops* target_;
  std::map<std::string, Total> totals_;
  std::vector<AnyArgs> calls_;
  bool keep_calls_ = false;
  int64_t workspace_bytes_ = 0;
  int64_t allocated_ = 0;
};

}  // namespace ops
