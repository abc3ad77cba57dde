// Simulation: each stage advances through its timeline until it depends on another stage.
//
// SPDX-License-Identifier: MIT
#include "trainer/planning/simulation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <stdexcept>
#include <tuple>

#include "trainer/planning/clock.h"

namespace trainer {
namespace {

using Entry = ops::Timeline::Entry;
using ops::Queue;
using ops::Transfer;

/// The times at which ranks reached one message or one collective over stages.
struct Meeting {
  int arrived = 0;
  double latest = 0;
};

/// Queue and number in it; for a message also its direction and stages.
using MeetingKey = std::tuple<Queue, int, int, int64_t>;

/// The progress of one stage.
struct Rank {
  std::span<const Entry> entries;
  size_t next = 0;
  bool announced = false;  ///< The item at `next` is entered in the meetings.
  std::array<double, ops::kQueues> ready{};
  struct Item {
    double end = 0, seconds = 0;
  };
  std::array<std::vector<Item>, ops::kQueues> items;
  std::map<std::tuple<bool, int>, int64_t> messages;  ///< Sent to, received from each stage.
  std::array<int64_t, ops::kQueues> met{};            ///< Collectives over stages.
  StageTime time;
  double clock = 1;    ///< Relative to full clock.
  double moved = 0;    ///< Seconds of transfers within the stage,
  double copied = 0;   ///< those of them by copy engines,
  double awaited = 0;  ///< and those not overlapped by computing.
};

class Simulator {
 public:
  /// `clocks`: of each stage.
  Simulator(const std::vector<ops::Timeline>& stages, std::span<const double> clocks,
            const Topology& topology, const Cluster& cluster, const Card& card, bool data_is_free)
      : topology_(topology), cluster_(cluster), card_(card), data_is_free_(data_is_free) {
    for (size_t s = 0; s < stages.size(); ++s) {
      ranks_.emplace_back();
      ranks_.back().entries = stages[s].entries();
      ranks_.back().clock = clocks[s];
    }
  }

  StepEstimate run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t s = 0; s < ranks_.size(); ++s)
        while (ranks_[s].next < ranks_[s].entries.size() && advance(static_cast<int>(s)))
          moved = true;
    }
    StepEstimate out;
    for (size_t s = 0; s < ranks_.size(); ++s) {
      if (ranks_[s].next < ranks_[s].entries.size())
        throw std::logic_error("simulation: stage " + std::to_string(s) + " waits for ever");
      out.seconds = std::max(out.seconds, end_of(ranks_[s]));
    }
    // Overlapped transfers take multiprocessors and memory bandwidth from computing. Those that
    // copy engines make are overlapped before others are.
    double lost = 0;
    for (const Rank& rank : ranks_) {
      const double hidden = std::max(0.0, rank.moved - rank.awaited);
      const double copied = std::min(hidden, rank.copied);
      lost =
          std::max(lost, card_.hidden_copy_cost * copied + card_.hidden_cost * (hidden - copied));
    }
    out.seconds += lost;
    for (Rank& rank : ranks_) {
      rank.time.exposed += lost;
      rank.time.bubble += std::max(0.0, out.seconds - lost - end_of(rank));
      out.stages.push_back(rank.time);
      if (rank.time.compute > out.stages[static_cast<size_t>(out.busiest)].compute)
        out.busiest = static_cast<int>(out.stages.size()) - 1;
    }
    return out;
  }

 private:
  static size_t at(Queue queue) { return static_cast<size_t>(queue); }
  static double end_of(const Rank& rank) { return rank.ready[at(Queue::compute)]; }

  bool over_stages(Queue queue) const {
    return ranks_.size() > 1 &&
           (queue == Queue::pipeline || queue == Queue::embedding || queue == Queue::world);
  }
  int ranks_meeting(Queue queue) const {
    return queue == Queue::world ? static_cast<int>(ranks_.size()) : 2;
  }

  void add_item(Rank& rank, Queue queue, double end, double seconds) {
    rank.items[at(queue)].push_back({end, seconds});
    rank.ready[at(queue)] = end;
  }

  /// The entries of one item: a transfer and the ones joined to it.
  std::span<const Entry> item_at(const Rank& rank) const {
    size_t end = rank.next + 1;
    while (end < rank.entries.size() && rank.entries[end].joined) ++end;
    return rank.entries.subspan(rank.next, end - rank.next);
  }

  GroupPlaceOnHosts place_of(int stage, const Entry& e) const {
    Topology here = topology_;
    here.pipeline_rank = stage;
    GroupPlaceOnHosts place = place_on_hosts(cluster_, here, e.queue, e.peer);
    place.copied = e.direct && can_copy(card_, place);
    return place;
  }

  double seconds_of(int stage, const Entry& e) {
    if (data_is_free_ && e.queue == Queue::data) return 0;
    const Transfer kind = e.transfer == Transfer::receive ? Transfer::send : e.transfer;
    const auto key = std::tuple(kind, e.queue, stage, e.peer, e.direct, e.amount);
    const auto [known, is_new] = seconds_.try_emplace(key);
    if (is_new) {
      const GroupPlaceOnHosts place = place_of(stage, e);
      known->second = transfer_seconds(card_, kind, e.amount, place);
      // Within a host multiprocessors move the bytes, at their clock.
      if (place.per_host == place.ranks && !place.copied)
        known->second /= ranks_[static_cast<size_t>(stage)].clock;
    }
    return known->second;
  }

  void follow(Rank& rank, const Entry& e) {
    const std::vector<Rank::Item>& items = rank.items[at(e.other)];
    const int64_t item = static_cast<int64_t>(items.size()) - 1 - e.back;
    if (item < 0) return;
    const Rank::Item& awaited = items[static_cast<size_t>(item)];
    double& now = rank.ready[at(e.queue)];
    const double wait = awaited.end - now;
    if (wait <= 0) return;
    now = awaited.end;
    if (e.queue != Queue::compute) return;
    const bool meets = over_stages(e.other);
    const double moving = meets ? std::min(wait, awaited.seconds) : wait;
    if (!meets) rank.awaited += wait;
    rank.time.exposed += moving;
    rank.time.bubble += std::max(0.0, wait - moving);
  }

  bool advance(int stage) {
    Rank& rank = ranks_[static_cast<size_t>(stage)];
    const Entry& e = rank.entries[rank.next];
    if (e.kind == Entry::Kind::follow) {
      follow(rank, e);
    } else if (e.kind == Entry::Kind::compute) {
      const double seconds = seconds_at(rank.clock, e.time);
      add_item(rank, Queue::compute, end_of(rank) + seconds, seconds);
      rank.time.compute += seconds;
      rank.time.flops += e.flops;
    } else if (over_stages(e.queue)) {
      return meet(stage);
    } else {
      const std::span<const Entry> item = item_at(rank);
      double seconds = 0;
      for (const Entry& part : item) seconds += seconds_of(stage, part);
      if (place_of(stage, item.front()).copied) rank.copied += seconds;
      // Several transfers in one group have one start time.
      if (seconds > 0) seconds -= static_cast<double>(item.size() - 1) * card_.link_us * 1e-6;
      add_item(rank, e.queue, rank.ready[at(e.queue)] + seconds, seconds);
      rank.moved += seconds;
      rank.next += item.size() - 1;
    }
    ++rank.next;
    return true;
  }

  MeetingKey key_of(int stage, const Entry& e, int64_t number) const {
    if (e.queue != Queue::pipeline) return {e.queue, 0, 0, number};
    const bool sends = e.transfer == Transfer::send;
    return {e.queue, sends ? stage : e.peer, sends ? e.peer : stage, number};
  }

  /// Whether everything that the item waits for has happened.
  bool meet(int stage) {
    Rank& rank = ranks_[static_cast<size_t>(stage)];
    const std::span<const Entry> item = item_at(rank);
    const Queue queue = item.front().queue;
    const double now = rank.ready[at(queue)];
    if (!rank.announced) {
      keys_of_.resize(ranks_.size());
      keys_of_[static_cast<size_t>(stage)].clear();
      for (const Entry& e : item) {
        const bool message = queue == Queue::pipeline;
        int64_t& number =
            message ? rank.messages[{e.transfer == Transfer::send, e.peer}] : rank.met[at(queue)];
        const MeetingKey key = key_of(stage, e, number++);
        keys_of_[static_cast<size_t>(stage)].push_back(key);
        Meeting& meeting = meetings_[key];
        ++meeting.arrived;
        meeting.latest = std::max(meeting.latest, now);
      }
      rank.announced = true;
    }
    double end = now, seconds = 0;
    for (size_t i = 0; i < item.size(); ++i) {
      const Meeting& meeting = meetings_.at(keys_of_[static_cast<size_t>(stage)][i]);
      if (meeting.arrived < ranks_meeting(queue)) return false;
      const double moving = seconds_of(stage, item[i]);
      seconds = std::max(seconds, moving);
      end = std::max(end, meeting.latest + moving);
    }
    add_item(rank, queue, end, seconds);
    rank.next += item.size();
    rank.announced = false;
    return true;
  }

  const Topology topology_;
  const Cluster cluster_;
  const Card& card_;
  const bool data_is_free_;
  std::vector<Rank> ranks_;
  std::map<MeetingKey, Meeting> meetings_;
  std::vector<std::vector<MeetingKey>> keys_of_;  ///< Of the item at which a stage waits.
  std::map<std::tuple<Transfer, Queue, int, int, bool, double>, double> seconds_;
};

}  // namespace

GroupPlaceOnHosts place_on_hosts(const Cluster& cluster, const Topology& t, Queue queue, int peer) {
  const int64_t local = std::max<int64_t>(cluster.local_size, 1);
  int64_t ranks = 1, stride = 1;
  switch (queue) {
    case Queue::compute:
      break;
    case Queue::tensor:
      ranks = t.tensor_size;
      break;
    case Queue::data:
      ranks = t.data_size, stride = t.tensor_size;
      break;
    case Queue::world:
      ranks = t.world_size();
      break;
    case Queue::embedding:
      peer = t.pipeline_rank == 0 ? t.pipeline_size - 1 : 0;
      [[fallthrough]];
    case Queue::pipeline: {
      const int64_t of_stage = int64_t{t.tensor_size} * t.data_size;
      const int64_t here = t.pipeline_rank * of_stage / local, there = peer * of_stage / local;
      const bool together = here == there && (of_stage <= local || peer == t.pipeline_rank);
      return {.ranks = 2, .per_host = together ? 2 : 1, .sharing = local};
    }
  }
  // Where what groups span neither divides a host nor is divided by it, some cross: those of one
  // span at each end of a host.
  const int64_t span = ranks * stride;
  const int64_t per_host = std::clamp<int64_t>(std::gcd(local, span) / stride, 1, ranks);
  const int64_t of_host = std::max<int64_t>(local / per_host, 1);
  const bool even = local % span == 0 || span % local == 0;
  return {.ranks = ranks,
          .per_host = per_host,
          .sharing = even ? of_host : std::min(of_host, 2 * stride)};
}

StepEstimate simulate(const std::vector<ops::Timeline>& stages, const Topology& topology,
                      const Cluster& cluster, const Card& card, bool data_is_free) {
  std::vector<ops::CallTime> work;
  std::vector<double> clocks;
  for (const ops::Timeline& stage : stages) {
    ops::CallTime& sum = work.emplace_back();
    for (const Entry& e : stage.entries()) sum += e.time;
    clocks.push_back(clock_of(card.power_limit, sum, 0));
  }
  const auto run = [&] {
    return Simulator(stages, clocks, topology, cluster, card, data_is_free).run();
  };
  StepEstimate step = run();
  // While it waits, a GPU takes less power, so that its clock is higher when it computes.
  constexpr double kPrecise = 2e-3;
  constexpr int kMostRounds = 4;
  for (int round = 0; round < kMostRounds; ++round) {
    double most = 0;
    for (size_t s = 0; s < stages.size(); ++s) {
      const StageTime& time = step.stages[s];
      const double clock = clock_of(card.power_limit, work[s], time.exposed + time.bubble);
      most = std::max(most, std::abs(clock - clocks[s]));
      clocks[s] = clock;
    }
    if (most < kPrecise) break;
    step = run();
  }
  return step;
}

}  // namespace trainer
