// Schedules as lists. First each stage's order of computing, by the rules of its kind; then all
// stages' computing is placed in time, which also proves that there is no deadlock; then every
// message is inserted where it is produced, in both ranks' lists. A message comes before everything
// that starts at that time or later, so the lists are parts of one order, and even blocking sends
// cannot deadlock.
//
// SPDX-License-Identifier: MIT
#include "trainer/schedule/action.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace trainer {
namespace {

using Kind = Action::Kind;

/// Computing of one stage, in order.
using Order = std::vector<Action>;

int64_t duration(Kind kind) { return kind == Kind::backward ? 2 : 1; }

bool is_backward(Kind kind) { return kind == Kind::backward || kind == Kind::backward_input; }

/// The i-th forward of a rank: rounds of `stages` micro-batches, in each round chunk after chunk.
Action nth_forward(int64_t i, int stages, int chunks) {
  const int64_t round = i / (int64_t{stages} * chunks), in_round = i % (int64_t{stages} * chunks);
  return {.kind = Kind::forward,
          .microbatch = round * stages + in_round % stages,
          .chunk = static_cast<int>(in_round / stages)};
}

/// The same order for backward, from the last chunk to the first.
Action nth_backward(int64_t i, int stages, int chunks) {
  Action action = nth_forward(i, stages, chunks);
  action.kind = Kind::backward;
  action.chunk = chunks - 1 - action.chunk;
  return action;
}

/// Warm-up: only forwards, as many as needed for the first backward to be in time; then one
/// forward, one backward; then the rest. An incomplete last round is ordered like a full one:
/// leaving actions out of a deadlock-free order keeps it deadlock-free.
Order forward_backward(int stage, int stages, int64_t microbatches, int chunks) {
  const int64_t after = stages - 1 - stage;
  const int64_t rounds = (microbatches + stages - 1) / stages;
  const int64_t all = chunks == 1 ? microbatches : rounds * stages * chunks;
  const int64_t warmup =
      std::min(chunks == 1 ? after : 2 * after + int64_t{chunks - 1} * stages, all);
  Order order;
  for (int64_t i = 0; i < all + warmup; ++i) {
    if (i < all) order.push_back(nth_forward(i, stages, chunks));
    if (i >= warmup) order.push_back(nth_backward(i - warmup, stages, chunks));
  }
  std::erase_if(order, [&](const Action& a) { return a.microbatch >= microbatches; });
  return order;
}

/// Like one_f_one_b, but rank r delays the weights' half by r micro-batches, so that the inputs'
/// halves are passed on without waiting for it.
Order zero_bubble(int stage, int stages, int64_t microbatches) {
  Order order;
  int64_t inputs = 0, weights = 0;
  for (const Action& action : forward_backward(stage, stages, microbatches, 1)) {
    order.push_back(action);
    if (action.kind != Kind::backward) continue;
    order.back().kind = Kind::backward_input;
    if (++inputs > stage)
      order.push_back({.kind = Kind::backward_weight, .microbatch = weights++, .chunk = 0});
  }
  while (weights < microbatches)
    order.push_back({.kind = Kind::backward_weight, .microbatch = weights++, .chunk = 0});
  return order;
}

std::vector<Order> make_orders(ScheduleKind kind, int stages, int64_t microbatches, int chunks) {
  std::vector<Order> orders;
  for (int stage = 0; stage < stages; ++stage) {
    if (kind == ScheduleKind::zero_bubble) {
      orders.push_back(zero_bubble(stage, stages, microbatches));
    } else if (kind == ScheduleKind::forward_only) {
      orders.push_back(forward_backward(stage, stages, microbatches, chunks));
      std::erase_if(orders.back(), [](const Action& a) { return a.kind != Kind::forward; });
    } else {
      orders.push_back(forward_backward(stage, stages, microbatches, chunks));
    }
  }
  return orders;
}

/// Places the computing of all stages in time.
class Clock {
 public:
  Clock(std::vector<Order> orders, int64_t microbatches, int chunks)
      : orders_(std::move(orders)),
        microbatches_(microbatches),
        chunks_(chunks),
        begins_(orders_.size()),
        ends_(static_cast<size_t>(2 * microbatches * parts()), kNotYet) {
    std::vector<int64_t> free(orders_.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t stage = 0; stage < orders_.size(); ++stage)
        while (begins_[stage].size() < orders_[stage].size() && start_next(stage, free[stage]))
          moved = true;
    }
    for (size_t stage = 0; stage < orders_.size(); ++stage) {
      if (begins_[stage].size() < orders_[stage].size())
        throw std::logic_error("schedule: stage " + std::to_string(stage) + " waits for ever");
      whole_ = std::max(whole_, free[stage]);
    }
  }

  int64_t whole() const noexcept { return whole_; }
  std::vector<Action> list(int stage) const;
  std::vector<TimedAction> timed(size_t stage) const;

 private:
  static constexpr int64_t kNotYet = -1;

  /// Forward or backward of a micro-batch through a part of the model; its place in ends_.
  size_t event(bool backward, int64_t microbatch, int64_t part) const noexcept {
    return static_cast<size_t>(((backward ? microbatches_ : 0) + microbatch) * parts() + part);
  }
  int64_t stages() const noexcept { return static_cast<int64_t>(orders_.size()); }
  int64_t parts() const noexcept { return stages() * chunks_; }
  int64_t part(size_t stage, const Action& a) const noexcept {
    return a.chunk * stages() + static_cast<int64_t>(stage);
  }
  /// When the input of an action is available, or kNotYet.
  int64_t input_at(size_t stage, const Action& a) const {
    const int64_t here = part(stage, a);
    if (a.kind == Kind::forward) return here == 0 ? 0 : ends_[event(false, a.microbatch, here - 1)];
    if (!is_backward(a.kind)) return ends_[event(true, a.microbatch, here)];
    const bool last = here + 1 == parts();
    return ends_[last ? event(false, a.microbatch, here) : event(true, a.microbatch, here + 1)];
  }
  bool start_next(size_t stage, int64_t& free) {
    const Action& a = orders_[stage][begins_[stage].size()];
    const int64_t input = input_at(stage, a);
    if (input < 0) return false;
    const int64_t begin = std::max(free, input);
    begins_[stage].push_back(begin);
    free = begin + duration(a.kind);
    if (a.kind != Kind::backward_weight)
      ends_[event(a.kind != Kind::forward, a.microbatch, part(stage, a))] = free;
    return true;
  }
  void add_message(int stage, bool backward, int64_t microbatch, int64_t from,
                   std::vector<std::pair<int64_t, Action>>& timed) const;

  const std::vector<Order> orders_;
  const int64_t microbatches_;
  const int chunks_;
  std::vector<std::vector<int64_t>> begins_;
  std::vector<int64_t> ends_;  ///< By event().
  int64_t whole_ = 0;
};

/// The message with the result of part `from`, with the time when it is produced, if this rank
/// sends or receives it.
void Clock::add_message(int stage, bool backward, int64_t microbatch, int64_t from,
                        std::vector<std::pair<int64_t, Action>>& timed) const {
  const int64_t count = stages(), to = from + (backward ? -1 : 1);
  if (to < 0 || to >= parts()) return;
  const int sender = static_cast<int>(from % count), receiver = static_cast<int>(to % count);
  const int64_t end = ends_[event(backward, microbatch, from)];
  if (sender == receiver || end == kNotYet) return;  // no backward in an evaluation.
  const auto add = [&](Kind kind, int64_t part, int peer) {
    timed.push_back({end,
                     {.kind = kind,
                      .microbatch = microbatch,
                      .chunk = static_cast<int>(part / count),
                      .peer = peer}});
  };
  if (sender == stage) add(backward ? Kind::send_backward : Kind::send_forward, from, receiver);
  if (receiver == stage) add(backward ? Kind::receive_backward : Kind::receive_forward, to, sender);
}

std::vector<Action> Clock::list(int stage) const {
  // Messages of the same time have the same order on all ranks: forward before backward, by
  // micro-batch and part.
  std::vector<std::pair<int64_t, Action>> timed;
  for (const bool backward : {false, true})
    for (int64_t microbatch = 0; microbatch < microbatches_; ++microbatch)
      for (int64_t from = 0; from < parts(); ++from)
        add_message(stage, backward, microbatch, from, timed);
  const auto is_message = [](const Action& a) { return a.sends() || a.receives(); };
  const size_t i = static_cast<size_t>(stage);
  for (size_t k = 0; k < orders_[i].size(); ++k) timed.push_back({begins_[i][k], orders_[i][k]});
  std::stable_sort(timed.begin(), timed.end(), [&](const auto& a, const auto& b) {
    return std::pair(a.first, !is_message(a.second)) < std::pair(b.first, !is_message(b.second));
  });
  std::vector<Action> actions;
  for (size_t k = 0; k < timed.size(); ++k) {
    actions.push_back(timed[k].second);
    actions.back().joined = k > 0 && is_message(timed[k].second) &&
                            is_message(timed[k - 1].second) && timed[k].first == timed[k - 1].first;
  }
  return actions;
}

std::vector<TimedAction> Clock::timed(size_t stage) const {
  std::vector<TimedAction> out;
  for (size_t k = 0; k < orders_[stage].size(); ++k) {
    const int64_t begin = begins_[stage][k];
    out.push_back({orders_[stage][k], begin, begin + duration(orders_[stage][k].kind)});
  }
  return out;
}

void check_arguments(ScheduleKind kind, int stage, int stages, int64_t num_microbatches,
                     int chunks) {
  const auto require = [](bool holds, const std::string& why) {
    if (!holds) throw std::invalid_argument("schedule: " + why);
  };
  require(stages >= 1 && stage >= 0 && stage < stages && num_microbatches >= 1,
          "stage " + std::to_string(stage) + " of " + std::to_string(stages) + ", " +
              std::to_string(num_microbatches) + " micro-batches: out of range");
  require(kind != ScheduleKind::sequential || stages == 1, "sequential has one stage");
  const bool many = kind == ScheduleKind::interleaved || kind == ScheduleKind::forward_only;
  require(chunks >= 1 && (chunks == 1 || (many && stages > 1)),
          std::to_string(chunks) + " chunks a rank: more than one for interleaved stages only");
}

}  // namespace

std::vector<Action> make_schedule(ScheduleKind kind, int stage, int stages,
                                  int64_t num_microbatches, int chunks) {
  check_arguments(kind, stage, stages, num_microbatches, chunks);
  return Clock(make_orders(kind, stages, num_microbatches, chunks), num_microbatches, chunks)
      .list(stage);
}

StepTime step_time(ScheduleKind kind, int stages, int64_t num_microbatches, int chunks) {
  check_arguments(kind, 0, stages, num_microbatches, chunks);
  const int64_t each = kind == ScheduleKind::forward_only ? 1 : 3;
  return {
      .whole = Clock(make_orders(kind, stages, num_microbatches, chunks), num_microbatches, chunks)
                   .whole(),
      .busy = each * num_microbatches * chunks};
}

std::vector<std::vector<TimedAction>> timed_schedule(ScheduleKind kind, int stages,
                                                     int64_t num_microbatches, int chunks) {
  check_arguments(kind, 0, stages, num_microbatches, chunks);
  const Clock clock(make_orders(kind, stages, num_microbatches, chunks), num_microbatches, chunks);
  std::vector<std::vector<TimedAction>> out;
  for (int stage = 0; stage < stages; ++stage)
    out.push_back(clock.timed(static_cast<size_t>(stage)));
  return out;
}

std::string describe(const std::vector<Action>& actions) {
  static constexpr const char* kWords[] = {"r", "F", "s", "rb", "B", "sb", "I", "W"};
  const bool chunks =
      std::any_of(actions.begin(), actions.end(), [](const Action& a) { return a.chunk > 0; });
  std::string text;
  for (const Action& action : actions) {
    text += (text.empty()    ? ""
             : action.joined ? "+"
                             : " ") +
            std::string(kWords[static_cast<size_t>(action.kind)]) +
            std::to_string(action.microbatch);
    if (chunks) text += "." + std::to_string(action.chunk);
  }
  return text;
}

int64_t most_in_flight(const std::vector<Action>& actions) {
  const bool halves = std::any_of(actions.begin(), actions.end(),
                                  [](const Action& a) { return a.kind == Kind::backward_weight; });
  int64_t now = 0, most = 0;
  for (const Action& action : actions) {
    if (action.kind == Kind::forward) most = std::max(most, ++now);
    if (action.kind == (halves ? Kind::backward_weight : Kind::backward)) --now;
  }
  return most;
}

}  // namespace trainer
