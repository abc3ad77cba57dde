// Comm: the collectives of one group of ranks. Backends: solo.cc (one rank: everything is a copy or
// nothing), and those for many processes in the same folder. Not here: which ranks form a group
// (parallel/topology.h), when collectives are called (parallel/, schedule/). May include:
// ops/tensor.h, ops/timeline.h. Counts are elements; every rank of the group makes the same calls
// in the same order. A Comm has its own queue. It synchronises with the compute stream only by
// Marks: comm.follow(ops.mark()) before it reads what was computed, ops.follow(comm.mark()) before
// what it wrote is read.
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

/// A peer does not respond, or its connection is lost: another rank may be the cause.
class PeerError : public ops::DeviceError {
 public:
  using DeviceError::DeviceError;
};

/// The smallest share, in bytes, that copy engines transfer; NCCL is faster below it.
inline constexpr int64_t kLeastSharedBytes = int64_t{1} << 20;
/// Memory that a rank needs for sums of such shares. Half of it holds one part of a sum, as all
/// other ranks send it. A part's sum waits until a product beside it ends, so a layer must not have
/// many parts: its next weights are gathered after them (ZeRO 3).
inline constexpr int64_t kSumBytes = int64_t{256} << 20;
/// The most ranks of a group whose GPUs copy from each other's memory.
inline constexpr int kMostSharing = 16;

/// How the ranks' elements are combined.
enum class Reduce : uint8_t { sum, mean, max };

/// Collectives of one group. Done: queued on this Comm's queue; buffers are free when its mark() is
/// reached. Errors: ShapeError if sizes do not fit the group; DeviceError if the library or a peer
/// failed. The order of a reduction is fixed for a fixed group, so two runs of one layout give the
/// same bits.
class Comm {
 public:
  virtual ~Comm() = default;

  /// This rank's number in the group, and the group's size.
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  /// "tensor-parallel, rank 1 of 4, nccl": for messages.
  virtual std::string describe() const = 0;
  /// Says where this rank's tensors are, so that ranks may access each other's memory directly:
  /// `memory` begins a block of the device that stays allocated as long as this Comm. All ranks
  /// call it once, or none does; each tensor lies at the same place of every rank's block. Returns,
  /// the same on all ranks, whether large sums and gathers of what is in it will go that way,
  /// except between group_begin() and group_end().
  virtual bool share_memory(const Tensor& memory) {
    static_cast<void>(memory);
    return false;
  }

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
  /// Returns when all ranks have called it; blocks the host.
  virtual void barrier() = 0;

  /// Calls between group_begin and group_end are queued as one, so that a send and a receive cannot
  /// deadlock.
  virtual void group_begin() = 0;
  virtual void group_end() = 0;

  /// As in Ops: mark() is the end of all queued work; after follow(mark), later work runs after
  /// `mark`.
  virtual Mark mark() = 0;
  virtual void follow(const Mark& mark) = 0;
};

/// A group of one.
std::unique_ptr<Comm> make_solo_comm();

/// Rank `rank` of `size` that communicates nothing, for planning. Shapes are checked as usual. With
/// a timeline it records what a group of several ranks would communicate, as `queue`.
std::unique_ptr<Comm> make_plan_comm(int rank, int size, ops::Timeline* timeline = nullptr,
                                     ops::Queue queue = ops::Queue::world);

}  // namespace comm
