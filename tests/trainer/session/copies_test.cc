// Transfers by copy engines, planned: which ones, how long they take, what they take from computing
// beside them, and their memory.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/engine/plan.h"
#include "trainer/planning/card.h"
#include "trainer/planning/simulation.h"
#include "trainer/planning/times.h"
#include "trainer/session/layout_cost.h"

namespace trainer {
namespace {

using ops::Transfer;

/// 1 GB/s by NCCL, of which half is lost to computing; 2 GB/s by copies, of which an eighth is.
Card card() {
  Card out;
  out.link_gb_per_s = 1;
  out.network_gb_per_s = 1;
  out.hidden_cost = 0.5;
  out.hidden_copy_cost = 0.125;
  out.peer_gib = 0.5;
  out.copies = {{Transfer::all_reduce, 2, 1, 2}};
  return out;
}

/// Seconds of a step in which 10 s of computing have a sum of 2 GB among two ranks beside them.
double step_seconds(const Card& card, bool direct, int64_t local_size = 2) {
  ops::Timeline timeline;
  timeline.transfer(ops::Queue::data, Transfer::all_reduce, 2'000'000'000, -1, direct);
  timeline.compute({.seconds = 10}, 0);
  timeline.follow(ops::Queue::compute, timeline.mark(ops::Queue::data));
  return simulate({timeline}, make_topology(0, 2, 1, 1),
                  {.world_size = 2, .local_size = local_size}, card)
      .seconds;
}

// 1 s of copies, half of it beside computing.
TEST(Copies, TakeNothingFromComputingThatWaitsForThem) {
  ops::Timeline timeline;
  timeline.transfer(ops::Queue::data, Transfer::all_reduce, 2'000'000'000, -1, true);
  timeline.compute({.seconds = 0.5}, 0);
  timeline.follow(ops::Queue::compute, timeline.mark(ops::Queue::data));
  timeline.compute({.seconds = 9.5}, 0);
  const StepEstimate step =
      simulate({timeline}, make_topology(0, 2, 1, 1), {.world_size = 2, .local_size = 2}, card());
  EXPECT_DOUBLE_EQ(step.seconds, 10 + 0.5 + 0.125 * 0.5);
}

TEST(Copies, TakeLessFromComputing) {
  EXPECT_DOUBLE_EQ(step_seconds(card(), false), 10 + 0.5 * 2);
  EXPECT_DOUBLE_EQ(step_seconds(card(), true), 10 + 0.125 * 1);
  EXPECT_DOUBLE_EQ(step_seconds(card(), true, 1), 10 + 0.5 * 2) << "not between hosts";
  Card none = card();
  none.peer_gib = 0;
  EXPECT_DOUBLE_EQ(step_seconds(none, true), 10 + 0.5 * 2);
  Card unmeasured = card();
  unmeasured.copies.clear();
  EXPECT_DOUBLE_EQ(step_seconds(unmeasured, true), 10 + 0.125 * 2) << "as fast as NCCL's";
}

/// Of a step of two data-parallel ranks: sums and gathers, and those of them that are direct.
struct Counted {
  int all = 0, direct = 0, small = 0;
};
Counted counted(const EngineOptions& options) {
  ModelSpec spec = family_defaults("gpt2");
  spec.num_layers = 2;
  spec.hidden_size = 512;
  spec.num_attention_heads = 4;
  spec.max_position_embeddings = 64;
  spec.vocab_size = spec.padded_vocab_size = 1024;
  complete(spec);
  const Card h200 = card_of(*ops::find_gpu("h200"));
  CardTimes times(h200, false);
  Counted out;
  const ops::Timeline timeline = plan_timeline({spec, options, make_topology(0, 2, 1, 1)}, times);
  for (const ops::Timeline::Entry& e : timeline.entries()) {
    if (e.kind != ops::Timeline::Entry::Kind::transfer || e.queue != ops::Queue::data) continue;
    ++out.all;
    out.direct += e.direct;
    const bool large = e.amount >= 2.0 * comm::kLeastSharedBytes;
    out.small += !large;
    EXPECT_TRUE(large || !e.direct) << e.amount;
  }
  return out;
}

TEST(Copies, AreLargeTransfersThatAreOverlapped) {
  EngineOptions options;
  options.seq_length = 64;
  options.micro_batch_size = 1;
  options.model_dtype = DType::bf16;
  for (const int zero : {0, 1, 2, 3}) {
    SCOPED_TRACE(testing::Message() << "ZeRO " << zero);
    options.zero_stage = zero;
    options.overlap_grad_reduce = options.overlap_param_gather = false;
    EXPECT_EQ(counted(options).direct > 0, zero >= 2);
    options.overlap_grad_reduce = true;
    const Counted c = counted(options);
    EXPECT_GT(c.direct, 0);
    EXPECT_EQ(c.direct + c.small, c.all);
    options.copy_engines = false;
    EXPECT_EQ(counted(options).direct, 0);
    options.copy_engines = true;
  }
  // The scales of tensors are maxima.
  options.zero_stage = 1;
  options.fp8 = {.format = Fp8Options::Format::hybrid, .recipe = Fp8Options::Recipe::tensorwise};
  options.fp8.param_gather = true;
  EXPECT_GT(counted(options).small, 0);
}

// Larger groups go by NCCL, also where one host has them.
TEST(Copies, AreForUpToSixteenRanks) {
  EXPECT_EQ(kMostCopying, 16);
  for (const int ranks : {16, 17}) {
    const Cluster cluster{.world_size = ranks, .local_size = ranks};
    const Topology data = make_topology(0, ranks, 1, 1);
    EngineOptions options;
    options.overlap_grad_reduce = true;
    EXPECT_EQ(copies_data(card(), options, data, cluster), ranks == 16);
    EXPECT_EQ(can_copy(card(), {.ranks = ranks, .per_host = ranks}), ranks == 16);
    const int64_t with = group_bytes(card(), {}, options, data, cluster);
    options.copy_engines = false;
    EXPECT_EQ(with > group_bytes(card(), {}, options, data, cluster), ranks == 16);
  }
}

TEST(Copies, TakeMemoryForEachOtherRankOfTheHost) {
  const auto bytes = [](const Card& card, bool overlap, int data, int64_t local_size,
                        bool copy_engines = true) {
    EngineOptions options;
    options.overlap_grad_reduce = overlap;
    options.copy_engines = copy_engines;
    return group_bytes(card, {}, options, make_topology(0, data, 1, 1),
                       {.world_size = data, .local_size = local_size});
  };
  const int64_t half_gib = int64_t{1} << 29;
  EXPECT_EQ(bytes(card(), true, 4, 4) - bytes(card(), false, 4, 4), 3 * half_gib + comm::kSumBytes);
  EXPECT_EQ(bytes(card(), true, 4, 4, false), bytes(card(), false, 4, 4));
  EXPECT_EQ(bytes(card(), true, 4, 2), bytes(card(), false, 4, 2));
  EXPECT_EQ(bytes(card(), true, 1, 4), bytes(card(), false, 1, 4));
  EXPECT_EQ(bytes(card(), true, 3, 4) - bytes(card(), false, 3, 4), 2 * half_gib + comm::kSumBytes);
  Card none = card();
  none.peer_gib = 0;
  EXPECT_EQ(bytes(none, true, 4, 4), bytes(none, false, 4, 4));
}

// A table that was written before copy engines made transfers.
TEST(Copies, OlderTablesAreRead) {
  Card full = card_of(*ops::find_gpu("h200"));
  full.copies = card().copies;
  std::string text = card_text(full);
  const auto replace = [&](const std::string& from, const std::string& to) {
    ASSERT_NE(text.find(from), std::string::npos) << from;
    text.replace(text.find(from), from.size(), to);
  };
  EXPECT_EQ(parse_card(text, "new.json").copies.size(), 1);
  const auto cut = [&](const std::string& key, const std::string& until) {
    const size_t begin = text.find("\"" + key + "\"");
    ASSERT_NE(begin, std::string::npos) << key;
    text.erase(begin, text.find(until, begin) - begin);
  };
  replace("\"gristmill_card\": 4", "\"gristmill_card\": 3");
  cut("hidden_copy_cost", "\"context_gib\"");
  cut("peer_gib", "\"products\"");
  text.replace(text.rfind("],\n  \"copies\""), std::string::npos, "]\n}\n");
  const Card old = parse_card(text, "old.json");
  EXPECT_EQ(old.hidden_copy_cost, old.hidden_cost);
  EXPECT_GT(old.peer_gib, 0);
  EXPECT_TRUE(old.copies.empty());
  EXPECT_GT(card_of(*ops::find_gpu("a100-80gb")).peer_gib, 0);
  EXPECT_EQ(card_of(*ops::find_gpu("rtx4090")).peer_gib, 0) << "no NVLink";
}

}  // namespace
}  // namespace trainer
