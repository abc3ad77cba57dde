// The Comm of planning: checks sizes, moves nothing.
//
// SPDX-License-Identifier: MIT
#include "trainer/comm/comm.h"

namespace comm {
namespace {

class PlanComm final : public Comm {
 public:
  PlanComm(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  std::string describe() const override {
    return "plan, rank " + std::to_string(rank_) + " of " + std::to_string(size_);
  }
  void all_reduce(Tensor, Reduce) override {}
  void reduce_scatter(Tensor dst, Tensor src, Reduce) override { expect_shares(src, dst); }
  void all_gather(Tensor dst, Tensor src) override { expect_shares(dst, src); }
  void broadcast(Tensor, int root) override { expect_rank(root); }
  void send(Tensor, int to) override { expect_rank(to); }
  void receive(Tensor, int from) override { expect_rank(from); }
  void barrier() override {}
  void group_begin() override {}
  void group_end() override {}
  Mark mark() override { return {}; }
  void follow(const Mark&) override {}

 private:
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
};

}  // namespace

std::unique_ptr<Comm> make_plan_comm(int rank, int size) {
  return std::make_unique<PlanComm>(rank, size);
}

}  // namespace comm
