// Timeline: what a planned step queues on which queue, in order, with the marks by which queues
// wait for each other. PlanOps and the planning Comm write it; trainer/planning simulates it. Not
// here: how long anything takes, except what PlanOps was given. May include: tensor.h.
// Units: seconds, bytes.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "trainer/ops/tensor.h"

namespace ops {

/// A queue of a rank: its compute stream, and that of each group's Comm.
enum class Queue : uint8_t { compute, tensor, data, pipeline, embedding, world };
inline constexpr size_t kQueues = 6;

/// What moves between ranks.
enum class Transfer : uint8_t {
  none,
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  send,
  receive
};

/// How long a call lasts at full clock, and what the clock of a power-limited device depends on.
struct CallTime {
  double seconds = 0;
  double clocked = 0;  ///< The part of it that is inverse to the clock; the rest waits for memory.
  double energy = 0;   ///< Beyond what the idle device takes, at full clock: in seconds of a
                       ///< 16-bit matrix product.
  CallTime& operator+=(const CallTime& other) {
    seconds += other.seconds, clocked += other.clocked, energy += other.energy;
    return *this;
  }
  friend CallTime operator+(CallTime a, const CallTime& b) { return a += b; }
  friend bool operator==(const CallTime&, const CallTime&) = default;
};

/// See the room card. Entries refer to each other by distance, so that a part of one timeline can
/// be appended to another.
class Timeline {
 public:
  struct Entry {
    enum class Kind : uint8_t { compute, transfer, follow };
    Kind kind = Kind::compute;
    Queue queue = Queue::compute;
    Queue other = Queue::compute;  ///< Of a follow: the queue that is waited for.
    Transfer transfer = Transfer::none;
    bool joined = false;  ///< Grouped with the transfer before it.
    bool direct = false;  ///< Between memory that ranks share, and large.
    int32_t peer = -1;    ///< Of a send or receive: the rank in its group.
    int64_t back = 0;     ///< Of a follow: how many items `other` has after the mark.
    double amount = 0;    ///< Bytes of a transfer (of the whole, gathered).
    CallTime time{};      ///< Of a compute,
    double flops = 0;     ///< with its floating point operations.
  };

  /// Work on the compute queue; merged with the item queued there just before, where nothing can
  /// wait in between.
  void compute(const CallTime& time, double flops);
  void transfer(Queue queue, Transfer kind, int64_t bytes, int peer = -1, bool direct = false);
  /// Transfers of one queue in between are one item.
  void group_begin() noexcept { in_group_ = true, group_started_ = false; }
  void group_end() noexcept { in_group_ = false; }
  /// The next compute starts a new item.
  void cut() noexcept { open_ = false; }
  Mark mark(Queue queue);
  /// `queue` waits for `mark`; does nothing for the default Mark.
  void follow(Queue queue, const Mark& mark);

  std::span<const Entry> entries() const noexcept { return entries_; }
  void append(std::span<const Entry> entries);

 private:
  std::vector<Entry> entries_;
  std::array<int64_t, kQueues> items_{};  ///< Queued so far.
  bool open_ = false;                     ///< The last entry is a compute that no mark has
                                          ///< followed.
  bool in_group_ = false, group_started_ = false;
};

}  // namespace ops
