// Learning-rate formulas against Megatron-core's own; pipeline schedules by simulation.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <tuple>

#include "trainer/optim/lr_schedule.h"
#include "trainer/parallel/topology.h"
#include "trainer/schedule/action.h"

namespace {

using namespace trainer;

LrDecayStyle lr_style(const std::string& name) {
  if (name == "constant") return LrDecayStyle::constant;
  if (name == "linear") return LrDecayStyle::linear;
  if (name == "cosine") return LrDecayStyle::cosine;
  return name == "WSD" ? LrDecayStyle::wsd : LrDecayStyle::inverse_square_root;
}
WsdDecayStyle wsd_style(const std::string& name) {
  if (name == "linear") return WsdDecayStyle::linear;
  if (name == "cosine") return WsdDecayStyle::cosine;
  return name == "exponential" ? WsdDecayStyle::exponential : WsdDecayStyle::minus_sqrt;
}
WeightDecayStyle wd_style(const std::string& name) {
  if (name == "constant") return WeightDecayStyle::constant;
  return name == "linear" ? WeightDecayStyle::linear : WeightDecayStyle::cosine;
}

TEST(LrSchedule, EqualsMegatrons) {
  std::ifstream file(std::string(GOLDEN_DIR) + "/trainer/lr_schedule.txt");
  std::string line, style, wsd, wd, bar;
  int points = 0;
  while (std::getline(file, line)) {
    if (line[0] == '#') continue;
    std::istringstream in(line);
    LrSchedule s;
    in >> style >> s.init_lr >> s.max_lr >> s.min_lr >> s.warmup_steps >> s.decay_steps >> wsd >>
        s.wsd_decay_steps >> wd >> s.start_weight_decay >> s.end_weight_decay >>
        s.weight_decay_steps >> bar;
    ASSERT_EQ(bar, "|") << line;
    s.style = lr_style(style);
    s.wsd_style = wsd_style(wsd);
    s.weight_decay_style = wd_style(wd);
    int64_t steps = 0;
    double lr = 0, decay = 0;
    while (in >> steps >> lr >> decay) {
      // The same operations in double: a few roundings (libm's cos, pow, sqrt differ by one ulp).
      EXPECT_NEAR(learning_rate(s, steps), lr, 1e-14 * s.max_lr)
          << style << " " << wsd << " " << steps;
      EXPECT_NEAR(weight_decay(s, steps), decay, 1e-14) << wd << " " << steps;
      ++points;
    }
  }
  EXPECT_GT(points, 100);
}

// Values of GPT-NeoX's AnnealingLR: 20 iterations, warm-up of 2, in samples of batches of 2.
TEST(LrSchedule, LinearToZeroEqualsGptNeoxs) {
  LrSchedule s{.style = LrDecayStyle::linear_to_zero,
               .max_lr = 0.01,
               .min_lr = 0.001,
               .warmup_steps = 4,
               .decay_steps = 40};
  for (const auto& [iteration, rate] : {std::pair{1, 0.005},
                                        {2, 0.01},
                                        {6, 0.0077777778},
                                        {11, 0.005},
                                        {15, 0.0027777778},
                                        {18, 0.0011111111},
                                        {19, 0.001},
                                        {20, 0.001},
                                        {21, 0.001}})
    EXPECT_NEAR(learning_rate(s, iteration * 2), rate, 1e-9) << iteration;
  s.min_lr = 0;
  LrSchedule linear = s;
  linear.style = LrDecayStyle::linear;
  for (int steps = 0; steps < 50; ++steps)
    EXPECT_EQ(learning_rate(s, steps), learning_rate(linear, steps)) << steps;
}

using Kind = Action::Kind;

struct Layout {
  ScheduleKind kind;
  int stages;
  int64_t microbatches;
  int chunks;
  std::string text() const {
    return "kind " + std::to_string(int(kind)) + ", stages " + std::to_string(stages) +
           ", micro-batches " + std::to_string(microbatches) + ", chunks " + std::to_string(chunks);
  }
};

std::vector<std::vector<Action>> lists_of(const Layout& l) {
  std::vector<std::vector<Action>> lists;
  for (int stage = 0; stage < l.stages; ++stage)
    lists.push_back(make_schedule(l.kind, stage, l.stages, l.microbatches, l.chunks));
  return lists;
}

/// Runs all stages' lists where nothing is buffered: a send ends when the other end is at the
/// receive of the same tensor in its own order, and an exchange when all of its parts have. Fails
/// when no stage can proceed.
class Simulation {
 public:
  explicit Simulation(const Layout& layout)
      : layout_(layout), lists_(lists_of(layout)), at_(lists_.size(), 0), met_(lists_.size()) {}

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t stage = 0; stage < lists_.size(); ++stage) moved = move(stage) || moved;
    }
    for (size_t i = 0; i < lists_.size(); ++i)
      ASSERT_EQ(at_[i], lists_[i].size())
          << layout_.text() << ": stage " << i << " waits for ever: " << describe(lists_[i]);
  }

 private:
  static bool message(const Action& a) { return a.sends() || a.receives(); }
  size_t exchange_end(size_t stage) const {
    size_t end = at_[stage] + 1;
    while (end < lists_[stage].size() && lists_[stage][end].joined) ++end;
    return end;
  }
  /// Whether `other` is at an exchange with the other end of `a`, which `stage` runs.
  bool meets(size_t stage, const Action& a) {
    const size_t other = static_cast<size_t>(a.peer);
    const auto& list = lists_[other];
    if (met_[stage].count(&a)) return true;
    if (at_[other] == list.size() || !message(list[at_[other]])) return false;
    const int parts = layout_.stages * layout_.chunks;
    const bool backward = a.kind == Kind::send_backward || a.kind == Kind::receive_backward;
    const int step = (a.sends() ? 1 : -1) * (backward ? -1 : 1);
    const int part = a.chunk * layout_.stages + static_cast<int>(stage) + step;
    EXPECT_TRUE(part >= 0 && part < parts);
    const Kind wanted = backward ? (a.sends() ? Kind::receive_backward : Kind::send_backward)
                                 : (a.sends() ? Kind::receive_forward : Kind::send_forward);
    for (size_t k = at_[other]; k < exchange_end(other); ++k) {
      const Action& b = list[k];
      if (b.kind != wanted || b.peer != static_cast<int>(stage) || met_[other].count(&b)) continue;
      // Two ranks' messages in one direction pair up by order alone.
      EXPECT_EQ(b.microbatch, a.microbatch) << layout_.text();
      EXPECT_EQ(b.chunk, part / layout_.stages) << layout_.text();
      met_[stage].insert(&a);
      met_[other].insert(&b);
      return true;
    }
    return false;
  }
  bool move(size_t stage) {
    if (at_[stage] == lists_[stage].size()) return false;
    if (!message(lists_[stage][at_[stage]])) return ++at_[stage], true;
    bool all = true;
    for (size_t k = at_[stage]; k < exchange_end(stage); ++k)
      all = meets(stage, lists_[stage][k]) && all;
    if (all) at_[stage] = exchange_end(stage);
    return all;
  }

  Layout layout_;
  std::vector<std::vector<Action>> lists_;
  std::vector<size_t> at_;
  std::vector<std::set<const Action*>> met_;
};

/// Every micro-batch goes once through every chunk, forward before backward, tensors present before
/// they are used and sent after they are computed.
void expect_whole(const Layout& l, const std::vector<Action>& list) {
  std::set<std::tuple<Kind, int64_t, int>> done;
  const auto has = [&](Kind kind, const Action& a) {
    return done.count({kind, a.microbatch, a.chunk}) > 0;
  };
  std::map<Kind, int64_t> counts;
  for (const Action& a : list) {
    EXPECT_TRUE(done.insert({a.kind, a.microbatch, a.chunk}).second) << l.text();
    ++counts[a.kind];
    const bool halves = l.kind == ScheduleKind::zero_bubble;
    const Kind made_by = a.kind == Kind::send_forward      ? Kind::forward
                         : a.kind == Kind::backward_weight ? Kind::backward_input
                         : a.kind != Kind::send_backward   ? Kind::forward
                         : halves                          ? Kind::backward_input
                                                           : Kind::backward;
    const bool first = a.kind == Kind::forward || a.receives();
    EXPECT_TRUE(first || has(made_by, a)) << l.text();
    if (a.receives()) {
      EXPECT_FALSE(has(a.kind == Kind::receive_forward ? Kind::forward
                       : halves                        ? Kind::backward_input
                                                       : Kind::backward,
                       a))
          << l.text();
    }
  }
  const int64_t all = l.microbatches * l.chunks;
  EXPECT_EQ(counts[Kind::forward], all) << l.text();
  EXPECT_EQ(counts[Kind::backward] + counts[Kind::backward_weight],
            l.kind == ScheduleKind::forward_only ? 0 : all)
      << l.text();
}

std::vector<Layout> layouts() {
  std::vector<Layout> all;
  for (int stages = 1; stages <= 8; ++stages)
    for (int64_t microbatches : {1, 2, 3, 4, 5, 7, 8, 12, 16, 19}) {
      for (ScheduleKind kind :
           {ScheduleKind::one_f_one_b, ScheduleKind::zero_bubble, ScheduleKind::forward_only})
        all.push_back({kind, stages, microbatches, 1});
      for (int chunks = 2; chunks <= 4 && stages > 1; ++chunks)
        for (ScheduleKind kind : {ScheduleKind::interleaved, ScheduleKind::forward_only})
          all.push_back({kind, stages, microbatches, chunks});
    }
  return all;
}

TEST(Schedule, NobodyWaitsForEver) {
  for (const Layout& layout : layouts()) {
    Simulation(layout).run();
    for (const std::vector<Action>& list : lists_of(layout)) expect_whole(layout, list);
  }
}

TEST(Schedule, HoldsAsManyMicroBatchesAsPredicted) {
  for (const Layout& l : layouts()) {
    if (l.kind == ScheduleKind::forward_only) continue;
    const std::vector<std::vector<Action>> lists = lists_of(l);
    for (int stage = 0; stage < l.stages; ++stage) {
      const int64_t after = l.stages - 1 - stage, all = l.microbatches * l.chunks;
      int64_t wanted = after + 1;
      if (l.chunks > 1) wanted = 2 * after + (l.chunks - 1) * l.stages + 1;
      // The weight half of `stage` micro-batches is deferred: p in total on each rank.
      if (l.kind == ScheduleKind::zero_bubble) wanted = l.stages;
      const int64_t most = most_in_flight(lists[static_cast<size_t>(stage)]);
      EXPECT_LE(most, std::min(wanted, all)) << l.text() << ", stage " << stage;
      if (l.chunks == 1 || l.microbatches % l.stages == 0) {
        EXPECT_EQ(most, std::min(wanted, all)) << l.text() << ", stage " << stage;
      }
    }
  }
}

TEST(Schedule, BubblesAreThoseOfThePapers) {
  for (int64_t p = 2; p <= 8; ++p)
    for (int64_t m = 2 * p; m <= 4 * p; m += p) {
      const int stages = static_cast<int>(p);
      const auto bubble = [&](ScheduleKind kind, int chunks = 1) {
        const StepTime time = step_time(kind, stages, m, chunks);
        return time.whole - time.busy;
      };
      EXPECT_EQ(bubble(ScheduleKind::one_f_one_b), 3 * (p - 1));
      EXPECT_EQ(bubble(ScheduleKind::zero_bubble), p - 1);
      for (int chunks = 2; chunks <= 4; ++chunks)  // the same, in units of a chunk.
        EXPECT_EQ(bubble(ScheduleKind::interleaved, chunks), 3 * (p - 1)) << p << " " << m;
      EXPECT_EQ(bubble(ScheduleKind::forward_only), p - 1);
    }
}

// The picture of a schedule: the same actions as the list, one after the other, each after those
// that it needs, and the step as long as step_time says.
TEST(Schedule, TimesAreThoseOfTheStep) {
  using Kind = Action::Kind;
  for (const auto& [kind, chunks] :
       {std::pair(ScheduleKind::one_f_one_b, 1), std::pair(ScheduleKind::zero_bubble, 1),
        std::pair(ScheduleKind::interleaved, 3)}) {
    const auto timed = timed_schedule(kind, 4, 9, chunks);
    ASSERT_EQ(timed.size(), size_t{4});
    int64_t whole = 0;
    std::map<std::pair<int64_t, int64_t>, int64_t> forward_end;  // by micro-batch and part
    for (int stage = 0; stage < 4; ++stage) {
      std::vector<Action> computes = make_schedule(kind, stage, 4, 9, chunks);
      std::erase_if(computes, [](const Action& a) { return a.sends() || a.receives(); });
      const auto& row = timed[static_cast<size_t>(stage)];
      ASSERT_EQ(row.size(), computes.size());
      int64_t before = 0;
      for (size_t i = 0; i < row.size(); ++i) {
        EXPECT_EQ(row[i].action.kind, computes[i].kind);
        EXPECT_EQ(row[i].action.microbatch, computes[i].microbatch);
        EXPECT_EQ(row[i].action.chunk, computes[i].chunk);
        EXPECT_GE(row[i].begin, before);
        EXPECT_EQ(row[i].end - row[i].begin, row[i].action.kind == Kind::backward ? 2 : 1);
        before = row[i].end;
        if (row[i].action.kind == Kind::forward)
          forward_end[{row[i].action.microbatch, row[i].action.chunk * 4 + stage}] = row[i].end;
      }
      whole = std::max(whole, before);
    }
    EXPECT_EQ(whole, step_time(kind, 4, 9, chunks).whole);
    for (const auto& [event, end] : forward_end)
      if (event.second > 0) {
        EXPECT_GT(end, forward_end.at({event.first, event.second - 1}));
      }
  }
}

TEST(Schedule, IsPrinted) {
  EXPECT_EQ(describe(make_schedule(ScheduleKind::sequential, 0, 1, 2)), "F0 B0 F1 B1");
  EXPECT_EQ(describe(make_schedule(ScheduleKind::one_f_one_b, 0, 2, 2)),
            "F0 s0 F1 s1 rb0 B0 rb1 B1");
  EXPECT_EQ(describe(make_schedule(ScheduleKind::one_f_one_b, 1, 2, 2)),
            "r0 F0 r1 B0 sb0 F1 B1 sb1");
  EXPECT_EQ(describe(make_schedule(ScheduleKind::zero_bubble, 1, 2, 2)),
            "r0 F0 r1 I0 sb0 F1 I1 sb1 W0 W1");
  EXPECT_EQ(describe(make_schedule(ScheduleKind::interleaved, 0, 2, 2, 2)),
            "F0.0 s0.0 F1.0 r0.1+s1.0 F0.1 s0.1+r1.1 F1.1 s1.1 rb0.1 B0.1 sb0.1 rb1.1 B1.1 "
            "rb0.0+sb1.1 B0.0 rb1.0 B1.0");
  EXPECT_THROW(make_schedule(ScheduleKind::sequential, 0, 2, 2), std::invalid_argument);
  EXPECT_THROW(make_schedule(ScheduleKind::one_f_one_b, 0, 2, 2, 2), std::invalid_argument);
}

TEST(BalancedLayers, GiveTheHeadItsPart) {
  ModelSpec spec = family_defaults("gpt2");
  spec.num_layers = 32;
  spec.hidden_size = 4096;
  spec.num_attention_heads = 32;
  spec.max_position_embeddings = 2048;
  spec.vocab_size = 50304;
  complete(spec);
  // The head is 0.94 of a layer: 8.94 on the last stage are less than 9 on another.
  EXPECT_EQ(balanced_layers(spec, 4, 2048), (std::vector<int64_t>{8, 8, 8, 8}));
  // Two extra layers: they go to stages with few micro-batches in flight, but not to the head's.
  spec.num_layers = 34;
  EXPECT_EQ(balanced_layers(spec, 4, 2048), (std::vector<int64_t>{8, 9, 9, 8}));
  EXPECT_EQ(balanced_layers(spec, 1, 2048), std::vector<int64_t>{34});
  // GPT-2 small: the head is 4.6 layers.
  spec.num_layers = 12;
  spec.hidden_size = 768;
  spec.num_attention_heads = spec.num_query_groups = 12;
  spec.kv_channels = 64;
  spec.ffn_hidden_size = 3072;
  EXPECT_EQ(balanced_layers(spec, 4, 1024), (std::vector<int64_t>{3, 4, 4, 1}));
  EXPECT_EQ(balanced_layers(spec, 12, 1024), std::vector<int64_t>(12, 1));
  EXPECT_THROW(balanced_layers(spec, 13, 1024), ShapeError);
}

TEST(Topology, RanksCoverEveryPlaceOnceInMegatronsOrder) {
  // The example of megatron/core/parallel_state.py: 16 ranks, tensor 2, pipeline 4.
  const Topology third = make_topology(3, 16, 2, 4);
  EXPECT_EQ(third.tensor_group(), (std::vector<int>{2, 3}));
  EXPECT_EQ(third.data_group(), (std::vector<int>{1, 3}));
  EXPECT_EQ(third.pipeline_group(), (std::vector<int>{3, 7, 11, 15}));
  for (int tensor : {1, 2, 4})
    for (int pipeline : {1, 2, 3}) {
      const int world = tensor * pipeline * 5;
      for (int rank = 0; rank < world; ++rank) {
        const Topology t = make_topology(rank, world, tensor, pipeline);
        EXPECT_EQ(t.rank(), rank);
        EXPECT_EQ(t.world_size(), world);
        EXPECT_EQ(t.data_group()[static_cast<size_t>(t.data_rank)], rank);
      }
    }
  EXPECT_THROW(make_topology(0, 6, 4, 1), ShapeError);
  EXPECT_THROW(make_topology(6, 6, 2, 1), ShapeError);
}

TEST(Topology, StagesHoldEveryParameterOnceAndTiedEmbeddingsTwice) {
  ModelSpec spec = family_defaults("gpt2");
  spec.num_layers = 7;
  spec.hidden_size = 8;
  spec.num_attention_heads = 2;
  spec.max_position_embeddings = 4;
  spec.vocab_size = 16;
  complete(spec);
  std::multiset<std::string> held;
  for (int rank = 0; rank < 3; ++rank)
    for (const LocalParam& p :
         local_params(spec, place_on(make_topology(rank, 3, 1, 3), spec, even_layers(7, 3))))
      held.insert(p.spec.name);
  for (const ParamSpec& p : param_table(spec))
    EXPECT_EQ(held.count(p.name), p.role == Role::word_embeddings ? 2u : 1u) << p.name;
  EXPECT_THROW(place_on(make_topology(0, 3, 1, 3), spec, {2, 2, 2}), ShapeError);
}

}  // namespace
