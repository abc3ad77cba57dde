// A group of one: every collective is a copy or nothing.
//
// SPDX-License-Identifier: MIT
#include <cstring>

#include "trainer/comm/comm.h"

namespace comm {
namespace {

/// dst and src of a group of one are usually the same memory; otherwise host memory is copied, a
/// device's is refused.
void move(const Tensor& dst, const Tensor& src) {
  if (dst.data == src.data) return;
  if (dst.device != ops::Device::cpu || dst.bytes() != src.bytes())
    throw ops::ShapeError("comm: a group of one: " + src.describe() + " to " + dst.describe() +
                          ": the same memory expected");
  std::memcpy(dst.data, src.data, static_cast<size_t>(dst.bytes()));
}

class SoloComm final : public Comm {
 public:
  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return 1; }
  std::string describe() const override { return "rank 0 of 1"; }
  void all_reduce(Tensor, Reduce) override {}
  void reduce_scatter(Tensor dst, Tensor src, Reduce) override { move(dst, src); }
  void all_gather(Tensor dst, Tensor src) override { move(dst, src); }
  void broadcast(Tensor, int) override {}
  void send(Tensor, int) override { refuse(); }
  void receive(Tensor, int) override { refuse(); }
  void barrier() override {}
  void group_begin() override {}
  void group_end() override {}
  Mark mark() override { return {}; }
  void follow(const Mark&) override {}

 private:
  [[noreturn]] static void refuse() {
    throw ops::ShapeError("comm: a group of one has nobody to send to");
  }
};

}  // namespace

std::unique_ptr<Comm> make_solo_comm() { return std::make_unique<SoloComm>(); }

}  // namespace comm
