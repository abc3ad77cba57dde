// Comm: the collectives of one group of ranks. Backends: solo.cc (one rank: everything is a copy or
// nothing), and those for many processes, beside it. Not here: which ranks form a group
// (parallel/topology.h), when a collective is due (parallel/, schedule/). May include:
// ops/tensor.h, ops/timeline.h. Counts are elements; every rank of the group makes the same calls
// in the same order. A Comm has its own queue. It meets the compute stream only through Marks:
// comm.follow(ops.mark()) before it may read what was computed, ops.follow(comm.mark()) before what
// it wrote may be read.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trainer/ops/tensor.h"
#include "trainer/ops/timeline.h"

namespace comm {

using ops::Mark;
using ops::Tensor;

/// A peer does not answer, or its connection is lost: another rank may be the cause.
class PeerError : public ops::DeviceError {
 public:
  using DeviceError::DeviceError;
};

/// How ranks' elements become one.
enum class Reduce : uint8_t { sum, mean, max };

/// Collectives of one group. Done: queued on this Comm's queue; buffers are free when its mark() is
/// reached. Errors: ShapeError when sizes do not fit the group; DeviceError when the library or a
/// peer failed. The order of a reduction is fixed for a fixed group, so two runs of one layout give
/// the same bits.
class Comm {
 public:
  virtual ~Comm() = default;

  /// This rank's place in the group, and how many there are.
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  /// "tensor-parallel, rank 1 of 4, nccl": for messages.
  virtual std::string describe() const = 0;

  /// x = reduce over ranks of x. In place.
  virtual void all_reduce(Tensor x, Reduce reduce) = 0;
  /// dst (n) = this rank's slice of the reduction of src (size * n). dst may be that slice of src.
  virtual void reduce_scatter(Tensor dst, Tensor src, Reduce reduce) = 0;
  /// dst (size * n) = the src (n) of all ranks in rank order. src may be this rank's slice of dst.
  virtual void all_gather(Tensor dst, Tensor src) = 0;
  /// x of `root` everywhere.
  virtual void broadcast(Tensor x, int root) = 0;
  /// Point to point, paired by order between two ranks.
  virtual void send(Tensor x, int to) = 0;
  virtual void receive(Tensor x, int from) = 0;
  /// Returns when all ranks have called it; the host waits.
  virtual void barrier() = 0;

  /// Between group_begin and group_end calls are queued as one, so that a send and a receive cannot
  /// wait for each other.
  virtual void group_begin() = 0;
  virtual void group_end() = 0;

  /// As in Ops: the end of all queued work; later work runs after `mark`.
  virtual Mark mark() = 0;
  virtual void follow(const Mark& mark) = 0;
};

/// A group of one.
std::unique_ptr<Comm> make_solo_comm();

/// Rank `rank` of `size` that exchanges nothing: for planning. Shapes are checked as everywhere.
/// With a timeline it writes there what a group of several would exchange, as `queue`.
std::unique_ptr<Comm> make_plan_comm(int rank, int size, ops::Timeline* timeline = nullptr,
                                     ops::Queue queue = ops::Queue::world);

}  // namespace comm
