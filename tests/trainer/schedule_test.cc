// Learning-rate formulas against Megatron-core's own; pipeline schedules by simulation.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

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

/// Runs all stages' lists with unbounded channels; fails when nobody can move.
void simulate(int stages, int64_t microbatches) {
  std::vector<std::vector<Action>> lists;
  for (int stage = 0; stage < stages; ++stage)
    lists.push_back(make_schedule(ScheduleKind::one_f_one_b, stage, stages, microbatches));
  std::set<std::pair<int, int64_t>> forward_sent, backward_sent;  // (receiving stage, micro-batch)
  std::vector<size_t> at(lists.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (int stage = 0; stage < stages; ++stage) {
      const size_t i = static_cast<size_t>(stage);
      if (at[i] == lists[i].size()) continue;
      const Action& action = lists[i][at[i]];
      if (action.kind == Action::Kind::receive_forward &&
          !forward_sent.count({stage, action.microbatch}))
        continue;
      if (action.kind == Action::Kind::receive_backward &&
          !backward_sent.count({stage, action.microbatch}))
        continue;
      if (action.kind == Action::Kind::send_forward)
        forward_sent.insert({stage + 1, action.microbatch});
      if (action.kind == Action::Kind::send_backward)
        backward_sent.insert({stage - 1, action.microbatch});
      ++at[i];
      moved = true;
    }
  }
  for (size_t i = 0; i < lists.size(); ++i) {
    ASSERT_EQ(at[i], lists[i].size()) << "stage " << i << " of " << stages << " waits for ever";
    EXPECT_EQ(most_in_flight(lists[i]),
              std::min<int64_t>(stages - static_cast<int64_t>(i), microbatches));
    std::set<int64_t> forwards, backwards;
    for (const Action& action : lists[i]) {
      if (action.kind == Action::Kind::forward) {
        EXPECT_TRUE(forwards.insert(action.microbatch).second);
      }
      if (action.kind == Action::Kind::backward) {
        EXPECT_TRUE(forwards.count(action.microbatch)) << "backward before forward";
        EXPECT_TRUE(backwards.insert(action.microbatch).second);
      }
    }
    EXPECT_EQ(static_cast<int64_t>(forwards.size()), microbatches);
    EXPECT_EQ(forwards, backwards);
  }
}

TEST(Schedule, NobodyWaitsForEver) {
  for (int stages = 1; stages <= 8; ++stages)
    for (int64_t microbatches = 1; microbatches <= 12; ++microbatches)
      simulate(stages, microbatches);
}

TEST(Schedule, IsPrinted) {
  EXPECT_EQ(describe(make_schedule(ScheduleKind::sequential, 0, 1, 2)), "F0 B0 F1 B1");
  EXPECT_EQ(describe(make_schedule(ScheduleKind::one_f_one_b, 0, 2, 2)),
            "F0 s0 F1 s1 rb0 B0 rb1 B1");
  EXPECT_EQ(describe(make_schedule(ScheduleKind::one_f_one_b, 1, 2, 2)),
            "r0 F0 B0 sb0 r1 F1 B1 sb1");
  EXPECT_THROW(make_schedule(ScheduleKind::sequential, 0, 2, 2), std::invalid_argument);
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
