// The Comm for planning: checks sizes, moves nothing, records what it would move.
//
// SPDX-License-Identifier: MIT
#include "trainer/comm/comm.h"

namespace comm {
namespace {

using ops::Timeline;
using ops::Transfer;

class PlanComm final : public Comm {
 public:
  PlanComm(int rank, int size, Timeline* timeline, ops::Queue queue)
      : rank_(rank), size_(size), timeline_(size > 1 ? timeline : nullptr), queue_(queue) {}
  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  std::string describe() const override {
    return "plan, rank " + std::to_string(rank_) + " of " + std::to_string(size_);
  }
  bool share_memory(const Tensor&) override { return shares_memory_ = true; }
  void all_reduce(Tensor x, Reduce reduce) override {
    add(Transfer::all_reduce, x, -1, reduce != Reduce::max);
  }
  void reduce_scatter(Tensor dst, Tensor src, Reduce reduce) override {
    expect_shares(src, dst);
    add(Transfer::reduce_scatter, src, -1, reduce != Reduce::max);
  }
  void all_gather(Tensor dst, Tensor src) override {
    expect_shares(dst, src);
    add(Transfer::all_gather, dst, -1, true);
  }
  void broadcast(Tensor x, int root) override {
    expect_rank(root);
    add(Transfer::broadcast, x);
  }
  void send(Tensor x, int to) override {
    expect_rank(to);
    add(Transfer::send, x, to);
  }
  void receive(Tensor x, int from) override {
    expect_rank(from);
    add(Transfer::receive, x, from);
  }
  void barrier() override {}
  void group_begin() override {
    if (timeline_) timeline_->group_begin();
  }
  void group_end() override {
    if (timeline_) timeline_->group_end();
  }
  Mark mark() override { return timeline_ ? timeline_->mark(queue_) : Mark(); }
  void follow(const Mark& mark) override {
    if (timeline_) timeline_->follow(queue_, mark);
  }

 private:
  void add(Transfer kind, const Tensor& whole, int peer = -1, bool direct = false) {
    if (!timeline_) return;
    direct = direct && shares_memory_ && whole.bytes() >= size_ * kLeastSharedBytes;
    timeline_->transfer(queue_, kind, whole.bytes(), peer, direct);
  }
  void expect_shares(const Tensor& whole, const Tensor& share) const {
    if (whole.elements() != share.elements() * size_ || whole.dtype != share.dtype)
      throw ops::ShapeError("comm: " + describe() + ": " + whole.describe() + " is no " +
                            std::to_string(size_) + " of " + share.describe());
  }
  void expect_rank(int rank) const {
    if (rank < 0 || rank >= size_)
      throw ops::ShapeError("comm: " + describe() + ": no rank " + std::to_string(rank));
  }

  int rank_, size_;
  bool shares_memory_ = false;
  Timeline* timeline_;
  ops::Queue queue_;
};

}  // namespace

std::unique_ptr<Comm> make_plan_comm(int rank, int size, Timeline* timeline, ops::Queue queue) {
  return std::make_unique<PlanComm>(rank, size, timeline, queue);
}

}  // namespace comm
