// Recording a Timeline.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/timeline.h"

namespace ops {
namespace {

/// A Mark's serial: 1 + queue in the high byte, the number of items below it.
constexpr int kQueueShift = 56;
constexpr uint64_t kItemMask = (uint64_t{1} << kQueueShift) - 1;

}  // namespace

void Timeline::compute(const CallTime& time, double flops) {
  if (open_) {
    entries_.back().time += time;
    entries_.back().flops += flops;
    return;
  }
  entries_.push_back({.time = time, .flops = flops});
  ++items_[static_cast<size_t>(Queue::compute)];
  open_ = true;
}

void Timeline::transfer(Queue queue, Transfer kind, int64_t bytes, int peer, bool direct) {
  const bool joined = in_group_ && group_started_;
  entries_.push_back({.kind = Entry::Kind::transfer,
                      .queue = queue,
                      .transfer = kind,
                      .joined = joined,
                      .direct = direct,
                      .peer = peer,
                      .amount = static_cast<double>(bytes)});
  if (!joined) ++items_[static_cast<size_t>(queue)];
  group_started_ = true;
  open_ = false;
}

Mark Timeline::mark(Queue queue) {
  if (queue == Queue::compute) open_ = false;
  const size_t at = static_cast<size_t>(queue);
  return {.serial = (uint64_t{at + 1} << kQueueShift) | static_cast<uint64_t>(items_[at])};
}

void Timeline::follow(Queue queue, const Mark& mark) {
  if (mark.serial == 0) return;
  const size_t other = (mark.serial >> kQueueShift) - 1;
  if (other == static_cast<size_t>(queue)) return;
  entries_.push_back({.kind = Entry::Kind::follow,
                      .queue = queue,
                      .other = static_cast<Queue>(other),
                      .back = items_[other] - static_cast<int64_t>(mark.serial & kItemMask)});
  open_ = false;
}

void Timeline::append(std::span<const Entry> entries) {
  entries_.insert(entries_.end(), entries.begin(), entries.end());
  for (const Entry& entry : entries)
    if (entry.kind != Entry::Kind::follow && !entry.joined)
      ++items_[static_cast<size_t>(entry.queue)];
  open_ = false;
}

}  // namespace ops
