// The search for a layout: against brute force, for any number of threads, with little memory; its
// refusals; and which of two layouts counts as the better one.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/layout_search.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <regex>
#include <set>

#include "tools/cli/fields.h"
#include "trainer/session/auto_layout.h"
#include "trainer/session/layout_report.h"

namespace trainer {
namespace {

using testing::HasSubstr;

SearchTask task(int64_t layers, int64_t hidden, int64_t world, int64_t samples,
                double memory_gib = 0) {
  TrainConfig config;
  config.num_layers = layers;
  config.hidden_size = hidden;
  config.num_attention_heads = hidden / 64;
  config.seq_length = 1024;
  config.hidden_dropout = config.attention_dropout = 0;
  config.train_iters = 10;
  config.lr = 1e-4;
  config.dry_run = true;
  config.max_global_batch_size = samples;
  Card card = card_of(*ops::find_gpu("h200"));
  if (memory_gib > 0) card.memory_gib = memory_gib;
  SearchTask out = search_task(config, {}, {.world_size = world, .local_size = 4}, card, 50257);
  out.top = 3;
  return out;
}

void expect_same(const SearchResult& a, const SearchResult& b) {
  ASSERT_EQ(a.best.size(), b.best.size());
  for (size_t i = 0; i < a.best.size(); ++i) {
    EXPECT_EQ(describe(a.best[i].layout), describe(b.best[i].layout));
    EXPECT_EQ(a.best[i].report.seconds, b.best[i].report.seconds);
    EXPECT_EQ(a.best[i].bytes, b.best[i].bytes);
  }
}

TEST(LayoutSearchTest, FindsWhatBruteForceFinds) {
  struct Case {
    int64_t layers, hidden, world, samples;
    double memory;
  };
  for (const Case& c : {Case{4, 512, 1, 16, 0}, Case{6, 1024, 4, 8, 0}, Case{12, 2048, 4, 8, 9},
                        Case{8, 2048, 4, 32, 6}, Case{12, 2048, 2, 6, 9}, Case{7, 4096, 4, 8, 20},
                        Case{8, 2048, 1, 1024, 9.5}}) {
    SearchTask t = task(c.layers, c.hidden, c.world, c.samples, c.memory);
    const bool on_host = c.samples == 1024;  // recomputing fits too, and takes longer.
    if (on_host) t.top = 1;
    const SearchResult found = search_layouts(t), all = search_all(t);
    ASSERT_FALSE(all.best.empty()) << c.layers << " layers of " << c.hidden;
    expect_same(found, all);
    EXPECT_LE(found.costed, all.costed);
    EXPECT_EQ(all.slower_by_bound, 0);
    EXPECT_EQ(found.enumerated, all.enumerated);
    EXPECT_EQ(found.best.front().layout.cpu_offload, on_host);
  }
}

// As was measured: bench/planning.md, "Two GPUs, by copy engines".
TEST(LayoutSearchTest, OfTimesNearEachOtherFewerMicroBatchesCount) {
  SearchTask t = task(24, 2048, 2, 16);
  t.config.num_attention_heads = 16;
  t.config.seq_length = 2048;
  t.exactly = true;
  t.top = 8;
  const SearchResult found = search_layouts(t);
  const Choice& best = found.best.front();
  EXPECT_EQ(best.layout.microbatches, 1) << describe(best.layout);
  const auto fastest =
      std::ranges::min_element(found.best, {}, [](const Choice& c) { return c.report.seconds; });
  EXPECT_GT(fastest->layout.microbatches, 1) << describe(fastest->layout);
  EXPECT_LT(best.report.seconds, 1.01 * fastest->report.seconds);
  expect_same(found, search_all(t));
}

// What the search took for the best does not fit by its exact plan, so that it begins again.
TEST(LayoutSearchTest, BeginsAgainWithEveryLayout) {
  int again = 0;
  for (const int64_t samples : {8, 16, 32}) {
    for (const double gib : {4.7, 4.95, 5.2}) {
      SearchTask t = task(4, 2048, 2, samples, gib);
      t.cluster.local_size = 2;
      const SearchResult found = search_layouts(t);
      again += found.began_again;
      if (found.began_again) expect_same(found, search_all(t));
    }
  }
  EXPECT_GT(again, 0) << "take other tasks";
}

TEST(LayoutSearchTest, ThreadsDoNotMatter) {
  SearchTask t = task(12, 2048, 8, 32, 16);
  t.threads = 1;
  const SearchResult one = search_layouts(t);
  t.threads = 3;
  const SearchResult three = search_layouts(t);
  expect_same(one, three);
  EXPECT_EQ(one.costed, three.costed);
}

// Every layout that is chosen fits by the exact plan of every stage, and does not with less memory.
TEST(LayoutSearchTest, LessMemoryIsKeptTo) {
  for (const double gib : {40.0, 12.0}) {
    const SearchTask t = task(8, 2048, 4, 16, gib);
    const SearchResult result = search_layouts(t);
    ASSERT_FALSE(result.best.empty()) << gib;
    for (const Choice& c : result.best) {
      EXPECT_LE(c.bytes, room_of(t.card));
      EXPECT_EQ(c.bytes, bytes_taken(planned_run(t, c.layout), t.card, true));
    }
  }
  const SearchResult none = search_layouts(task(8, 2048, 4, 16, 1.5));
  EXPECT_TRUE(none.best.empty());
  EXPECT_GT(none.no_room, 0);
}

// Of 6 layers the stages have 1, 2, 2 and 1: those in the middle may take most. More memory never
// makes a plan slower, or takes it away.
TEST(LayoutSearchTest, MoreMemoryIsNeverWorse) {
  double before = INFINITY;
  int planned = 0;
  for (double gib = 6; gib < 16; gib += 0.4) {
    SearchTask t = task(6, 4096, 4, 16, gib);
    t.config.pipeline_model_parallel_size = 4;
    t.config.micro_batch_size = 1;
    t.given.insert({"pipeline-model-parallel-size", "micro-batch-size"});
    t.top = 1;
    const SearchResult result = search_layouts(t);
    if (result.best.empty()) {
      EXPECT_EQ(planned, 0) << gib << " GiB: there was a layout for less memory";
      continue;
    }
    ++planned;
    const Choice& best = result.best.front();
    const double seconds =
        best.report.seconds / static_cast<double>(best.layout.global_batch_size());
    EXPECT_LE(seconds, before * (1 + 1e-9)) << gib << " GiB";
    before = seconds;
  }
  EXPECT_GT(planned, 5);
}

TEST(LayoutSearchTest, AMissIsNamedWithWhatWouldFit) {
  const SearchTask t = task(16, 2048, 1, 8, 18);
  const SearchResult result = search_layouts(t);
  ASSERT_TRUE(result.nearest_miss.has_value());
  EXPECT_GT(result.nearest_miss->bytes, room_of(t.card));
  ASSERT_TRUE(result.nearest_miss->fitting.has_value());
  EXPECT_LE(result.nearest_miss->fitting->bytes, room_of(t.card));
  const std::string text = text_report(result, {.task = t, .words = {}});
  EXPECT_THAT(text, HasSubstr("nearest miss: tensor 1, pipeline 1"));
  EXPECT_THAT(text,
              testing::ContainsRegex("needs [0-9.]+ GiB of 18.0 GiB; with --.*[a-z0-9] it fits"));
}

double per_sample(double seconds, const Layout& layout) {
  return seconds / static_cast<double>(layout.global_batch_size());
}

// By looking at every layout: of those that would be faster than the best and do not fit, the one
// that takes the least.
std::optional<LeastMemory> nearest_miss(const SearchTask& t, const Choice& best) {
  const LayoutSpace space{.world_size = t.cluster.world_size,
                          .local_size = t.cluster.local_size,
                          .num_layers = *t.config.num_layers,
                          .most_samples = t.most_samples,
                          .bf16 = true};
  CardTimes times(t.card, false);
  std::optional<LeastMemory> least;
  for (const Layout& layout : enumerate_layouts(space, t.config, {})) {
    try {
      const PlannedRun run = planned_run(t, layout);
      const int64_t bytes = bytes_taken(run, t.card, false);
      if (bytes <= room_of(t.card) || (least && bytes >= least->bytes)) continue;
      const double seconds = estimate_step(run, t.cluster, t.card, times).seconds;
      if (per_sample(seconds, layout) < per_sample(best.report.seconds, best.layout))
        least = {layout, bytes};
    } catch (const std::exception&) {  // the trainer refuses it.
    }
  }
  return least;
}

TEST(LayoutSearchTest, TheNearestMissIsNearest) {
  int missed = 0;
  for (const double gib : {3.5, 4.0, 4.5, 6.0, 9.0, 14.0, 60.0}) {
    SearchTask t = task(8, 2048, 4, 32, gib);
    t.top = 1;
    const SearchResult result = search_layouts(t);
    ASSERT_FALSE(result.best.empty()) << gib;
    const std::optional<LeastMemory> least = nearest_miss(t, result.best.front());
    ASSERT_EQ(least.has_value(), result.nearest_miss.has_value()) << gib;
    if (!least) continue;
    ++missed;
    EXPECT_EQ(describe(result.nearest_miss->layout), describe(least->layout)) << gib;
    EXPECT_GT(result.nearest_miss->tokens_per_second, result.best.front().report.tokens_per_second);
  }
  EXPECT_GE(missed, 2);
}

// Not every stage that computes the same takes the same, and a later one may take most.
TEST(LayoutSearchTest, BytesAreThoseOfTheStageThatTakesMost) {
  SearchTask t = task(6, 4096, 4, 16);
  Layout layout{.microbatches = 16, .pipeline = 4, .schedule = "zero-bubble", .bf16 = true};
  layout.recompute = Layout::Recompute::selective;
  const PlannedRun run = planned_run(t, layout);
  std::vector<int64_t> stages;
  for (int stage = 0; stage < 4; ++stage) stages.push_back(bytes_of_stage(run, t.card, stage));
  EXPECT_EQ(std::ranges::max_element(stages) - stages.begin(), 2) << "else this shows nothing";
  for (const bool exact : {true, false})
    EXPECT_EQ(bytes_taken(run, t.card, exact), std::ranges::max(stages)) << exact;
}

/// Everything that recomputation may be, for one layout.
std::vector<Layout> recomputed(const Layout& layout, int64_t layers) {
  std::vector<Layout> out = {layout};
  const auto add = [&](Layout::Recompute kind, int64_t count) {
    out.push_back(layout);
    out.back().recompute = kind;
    out.back().recompute_layers = count;
  };
  add(Layout::Recompute::selective, 1);
  for (int64_t i = 1; i < layers; ++i) add(Layout::Recompute::block, i);
  for (const int64_t together : {1, 2, 4, 8}) add(Layout::Recompute::full, together);
  return out;
}

// Each layout with every recomputation, on the device and on the host: none that fits is faster
// than the best. Offload may be better than a recomputation that fits.
TEST(LayoutSearchTest, NothingThatFitsIsFaster) {
  int offloaded = 0, recomputing = 0;
  for (const double gib : {3.37, 4.16, 4.26, 4.36}) {
    SearchTask t = task(8, 1024, 2, 4096, gib);
    t.given.insert({"tensor-model-parallel-size", "pipeline-model-parallel-size",
                    "micro-batch-size", "zero-stage"});
    t.config.micro_batch_size = 2;
    t.config.zero_stage = 1;
    t.top = 1;
    const SearchResult result = search_layouts(t);
    ASSERT_FALSE(result.best.empty()) << gib;
    const Layout& best = result.best.front().layout;
    const double seconds = per_sample(result.best.front().report.seconds, best);
    const LayoutSpace space{
        .world_size = 2, .local_size = 2, .num_layers = 8, .most_samples = 4096, .bf16 = true};
    CardTimes device(t.card, false), host(t.card, true);
    bool fits_recomputed = false;
    for (const Layout& plain : enumerate_layouts(space, t.config, fixed_of(t))) {
      for (Layout layout : recomputed(plain, 8)) {
        for (const bool on_host : {false, true}) {
          layout.cpu_offload = on_host;
          const PlannedRun run = planned_run(t, layout);
          if (bytes_taken(run, t.card, true) > room_of(t.card)) continue;
          fits_recomputed |= layout.recompute != Layout::Recompute::none && !on_host;
          EXPECT_GE(
              per_sample(estimate_step(run, t.cluster, t.card, on_host ? host : device).seconds,
                         layout),
              seconds * (1 - 1e-9))
              << gib << " GiB: " << describe(layout) << " beats " << describe(best);
        }
      }
    }
    offloaded += best.cpu_offload && fits_recomputed;
    recomputing += best.recompute != Layout::Recompute::none;
  }
  EXPECT_GT(offloaded, 0);
  EXPECT_GT(recomputing, 0);
}

/// The bytes of what takes least in a space, and of what does without recomputation and offload.
struct Least {
  int64_t any = INT64_MAX, plain = INT64_MAX;
  Layout layout;  ///< Of `any`.
};
Least least_of_all(const SearchTask& t) {
  const int64_t layers = *t.config.num_layers;
  const LayoutSpace space{.world_size = t.cluster.world_size,
                          .local_size = t.cluster.local_size,
                          .num_layers = layers,
                          .most_samples = t.most_samples,
                          .bf16 = true};
  Least least;
  for (const Layout& layout : enumerate_layouts(space, t.config, {})) {
    for (Layout changed : recomputed(layout, layers)) {
      for (const bool host : {false, true}) {
        changed.cpu_offload = host;
        try {
          const int64_t bytes = bytes_taken(planned_run(t, changed), t.card, true);
          if (changed == layout) least.plain = std::min(least.plain, bytes);
          if (bytes < least.any) least.any = bytes, least.layout = changed;
        } catch (const std::exception&) {
          continue;  // the trainer refuses it.
        }
      }
    }
  }
  return least;
}

// Where nothing fits, what takes least is named, with and without recomputation and offload: of
// everything that could be chosen.
TEST(LayoutSearchTest, WhatTakesLeastIsNamedWhereNothingFits) {
  SearchTask t = task(48, 512, 1, 4, 0.7);
  Least least = least_of_all(t);
  EXPECT_GT(least.layout.recompute_layers, 1) << "else this shows nothing";
  SearchResult result = search_layouts(t);
  ASSERT_TRUE(result.nearest_miss && result.least_plain);
  EXPECT_EQ(result.nearest_miss->bytes, least.any);
  EXPECT_EQ(result.least_plain->bytes, least.plain);

  t = task(4, 2048, 4, 8, 0.7);
  least = least_of_all(t);
  ASSERT_LT(least.any, least.plain);
  result = search_layouts(t);
  EXPECT_TRUE(result.best.empty());
  ASSERT_TRUE(result.nearest_miss && result.least_plain);
  EXPECT_EQ(result.nearest_miss->bytes, least.any);
  EXPECT_EQ(result.least_plain->bytes, least.plain);
  EXPECT_GT(result.nearest_miss->tokens_per_second, 0);
  const std::string text = text_report(result, {.task = t, .words = {}});
  EXPECT_THAT(text, testing::ContainsRegex(
                        "nearest miss: tensor .*, (recompute|state) .*\n    needs [0-9.]+ GiB of "
                        "0.7 GiB, the least of all layouts\n    without recomputation and offload "
                        "the least is [0-9.]+ GiB of 0.7 GiB: tensor "));
  // A layout that the command fixes is the only one.
  t.as_given = true;
  t.config.micro_batch_size = 2;
  result = search_layouts(t);
  ASSERT_TRUE(result.nearest_miss.has_value());
  EXPECT_FALSE(result.least_plain.has_value());
  EXPECT_EQ(result.nearest_miss->bytes,
            bytes_taken(planned_run(t, result.nearest_miss->layout), t.card, true));
  EXPECT_THAT(text_report(result, {.task = t, .words = {}}),
              testing::ContainsRegex("nearest miss: tensor 1, pipeline 1, data 4, [0-9] x 2 "
                                     "samples\n    needs [0-9.]+ GiB of 0.7 GiB\n$"));
}

// With enough memory for what takes least, there is a layout.
TEST(LayoutSearchTest, TheLeastIsEnough) {
  SearchTask t = task(4, 2048, 4, 8, 0.7);
  const int64_t least = search_layouts(t).nearest_miss->bytes;
  t.card.memory_gib = static_cast<double>(least) / (int64_t{1} << 30);
  EXPECT_FALSE(search_layouts(t).best.empty());
  t.card.memory_gib = static_cast<double>(least - 1024) / (int64_t{1} << 30);
  const SearchResult none = search_layouts(t);
  EXPECT_TRUE(none.best.empty());
  EXPECT_EQ(none.nearest_miss->bytes, least);
  const std::string text = text_report(none, {.task = t, .words = {}});
  EXPECT_FALSE(std::regex_search(text, std::regex("needs ([0-9.]+ GiB) of \\1"))) << text;
}

// The bound by which the search leaves out what cannot fit is never above what is taken, and near
// it.
TEST(LayoutSearchTest, LeastBytesAreABound) {
  SearchTask t = task(8, 4096, 8, 32);
  const LayoutSpace space{
      .world_size = 8, .local_size = 4, .num_layers = 8, .most_samples = 32, .bf16 = true};
  size_t seen = 0;
  double compared = 0, ratios = 0;
  KeptBytes kept;
  for (const Layout& plain : enumerate_layouts(space, t.config, {})) {
    if (++seen % 7 != 0) continue;
    const std::vector<Layout> ways = recomputed(plain, 3);
    const Layout& layout = ways[seen / 7 % ways.size()];
    PlannedRun run;
    try {
      run = planned_run(t, layout);
    } catch (const std::exception&) {
      continue;  // the trainer refuses it.
    }
    const LeastBytes least = bytes_at_least(run, t.card, kept);
    KeptBytes none;
    ASSERT_EQ(least.all, bytes_at_least(run, t.card, none).all) << describe(layout);
    const int64_t beside =
        bytes_beside_plan(t.card, run.spec, run.options, run.topology, t.cluster);
    const int64_t taken = bytes_taken(run, t.card, false) - beside;
    ASSERT_LE(least.all - beside, taken) << describe(layout);
    ASSERT_LT(least.states, least.all) << describe(layout);
    ratios += static_cast<double>(least.all - beside) / static_cast<double>(taken);
    ++compared;
  }
  EXPECT_GT(compared, 50);
  EXPECT_GT(ratios / compared, 0.8);
}

/// A step by its stages, each planned by itself.
double stage_by_stage(const PlannedRun& run, const SearchTask& t) {
  CardTimes times(t.card, false);
  std::vector<ops::Timeline> stages;
  for (int stage = 0; stage < run.topology.pipeline_size; ++stage) {
    Topology topology = run.topology;
    topology.pipeline_rank = stage;
    stages.push_back(plan_timeline({run.spec, run.options, topology}, times));
  }
  return simulate(stages, run.topology, t.cluster, t.card).seconds;
}

// Stages that compute the same share one plan; no others do.
TEST(LayoutSearchTest, StepsAreThoseOfTheirStages) {
  for (const char* fp8_format : {"", "hybrid"}) {
    SearchTask t = task(24, 1024, 8, 16);
    t.given = {"bf16", "pipeline-model-parallel-size"};
    t.config.bf16 = true;
    t.config.fp8_format = fp8_format;
    t.card.transfers.clear();  // a slow link, so that what is fetched when counts.
    t.card.link_gb_per_s = 2;
    if (*fp8_format != 0) {  // the second stage too has layers that are not in FP8.
      t.given.insert({"fp8-format", "first-last-layers-bf16", "num-layers-at-start-in-bf16"});
      t.config.first_last_layers_bf16 = true;
      t.config.num_layers_at_start_in_bf16 = 9;
    }
    int64_t compared = 0;
    for (const int64_t stages : {4, 8}) {
      t.config.pipeline_model_parallel_size = stages;
      const LayoutSpace space{
          .world_size = 8, .local_size = 4, .num_layers = 24, .most_samples = 16, .bf16 = true};
      for (const Layout& layout : enumerate_layouts(space, t.config, fixed_by(t.given))) {
        PlannedRun run;
        try {
          run = planned_run(t, layout);
        } catch (const std::exception&) {
          continue;  // the trainer refuses it.
        }
        CardTimes times(t.card, false);
        EXPECT_EQ(estimate_step(run, t.cluster, t.card, times).seconds, stage_by_stage(run, t))
            << describe(layout);
        ++compared;
      }
    }
    EXPECT_GT(compared, 30) << fp8_format;
  }
}

// Where only recomputation is open, with exactly the memory of each way to recompute: the fastest
// that fits is found.
TEST(LayoutSearchTest, RecomputesNoMoreThanMemoryNeeds) {
  constexpr int64_t kLayers = 24;
  SearchTask t = task(kLayers, 512, 1, 32);
  t.given = {"micro-batch-size", "cpu-offload"};
  t.config.micro_batch_size = 32;
  t.top = 1;
  t.threads = 1;
  const Layout plain{.micro_batch_size = 32, .bf16 = true};
  std::vector<Choice> all;
  for (const Layout& layout : recomputed(plain, kLayers)) {
    const PlannedRun run = planned_run(t, layout);
    CardTimes times(t.card, false);
    all.push_back({.layout = layout,
                   .bytes = bytes_taken(run, t.card, true),
                   .report = report_of(estimate_step(run, t.cluster, t.card, times), run, t.cluster,
                                       t.card)});
  }
  std::set<Layout::Recompute> kinds;
  for (const Choice& exact : all) {
    t.card.memory_gib = static_cast<double>(exact.bytes) / (int64_t{1} << 30);
    const Choice* fastest = nullptr;
    for (const Choice& c : all)
      if (c.bytes <= room_of(t.card) &&
          (fastest == nullptr || c.report.seconds < fastest->report.seconds))
        fastest = &c;
    const SearchResult found = search_layouts(t);
    ASSERT_EQ(found.best.size(), 1u) << describe(exact.layout);
    EXPECT_LE(found.best.front().report.seconds, fastest->report.seconds * (1 + 1e-9))
        << describe(found.best.front().layout) << " instead of " << describe(fastest->layout);
    kinds.insert(found.best.front().layout.recompute);
  }
  EXPECT_GE(kinds.size(), 3u);
}

// What a command sets is not changed.
TEST(LayoutSearchTest, FlagsOfTheCommandStay) {
  SearchTask t = task(8, 1024, 4, 16);
  t.given = {"tensor-model-parallel-size", "zero-stage"};
  t.config.tensor_model_parallel_size = 2;
  t.config.zero_stage = 0;
  const SearchResult result = search_layouts(t);
  for (const Choice& c : result.best) {
    const PlannedRun run = planned_run(t, c.layout);
    EXPECT_EQ(run.topology.tensor_size, 2);
    EXPECT_EQ(run.options.zero_stage, 0);
    for (const std::string& word : words_of(c.layout, fixed_by(t.given)))
      EXPECT_NE(word, "--tensor-model-parallel-size");
  }
}

TEST(LayoutSearchTest, RefusalsAreTheTrainersOwnWords) {
  SearchTask t = task(6, 1024, 4, 16);
  t.config.num_attention_heads = 6;
  t.config.kv_channels = 64;
  const SearchResult result = search_layouts(t);
  EXPECT_TRUE(result.refusals.contains(
      "--tensor-model-parallel-size 4 does not divide --num-attention-heads 6"));
  // The only layout there is.
  t = task(6, 1024, 1, 1);
  t.config.num_attention_heads = 5;
  EXPECT_THAT([&] { search_layouts(t); },
              testing::ThrowsMessage<cli::UsageError>(
                  "--num-attention-heads 5 does not divide --hidden-size 1024"));
  // Several reasons, and no layout that escapes all.
  t = task(6, 1024, 1, 3);
  t.config.fp8_format = "hybrid";
  t.config.seq_length = 12;
  EXPECT_THAT([&] { search_layouts(t); },
              testing::ThrowsMessage<cli::UsageError>(
                  "--micro-batch-size 1 times --seq-length 12: --fp8-format needs a multiple of 16 "
                  "(the most frequent of 3 reasons)"));
  t = task(6, 1024, 4, 2);
  t.given = {"micro-batch-size"};
  t.config.micro_batch_size = 3;
  EXPECT_THROW(search_layouts(t), cli::UsageError);
}

// Where the command says so, and there is anything to gather; it takes less memory.
TEST(LayoutSearchTest, WeightsInFp8AreGatheredAsSuch) {
  SearchTask t = task(8, 1024, 8, 32);
  t.given = {"bf16", "fp8-format"};
  t.config.bf16 = true;
  t.config.fp8_format = "hybrid";
  for (const Choice& c : search_layouts(t).best)
    EXPECT_FALSE(planned_run(t, c.layout).options.fp8.param_gather) << describe(c.layout);
  t.given = {"bf16", "fp8-format", "fp8-param-gather", "zero-stage"};
  t.config.zero_stage = 1;
  SearchTask without = t;
  t.config.fp8_param_gather = true;
  int64_t gathering = 0;
  for (const Choice& c : search_layouts(t).best) {
    if (c.layout.data == 1) continue;
    EXPECT_TRUE(planned_run(t, c.layout).options.fp8.param_gather) << describe(c.layout);
    Layout plain = c.layout;
    plain.fp8_param_gather = false;
    EXPECT_LT(c.bytes, bytes_taken(planned_run(without, plain), t.card, true));
    ++gathering;
  }
  EXPECT_GT(gathering, 0);
}

// The flags of a layout, parsed again, give the layout.
TEST(LayoutTest, WordsSayWhatApplySets) {
  SearchTask t = task(8, 1024, 8, 32);
  t.config.fp8_format = "hybrid";
  const LayoutSpace space{
      .world_size = 8, .local_size = 4, .num_layers = 8, .most_samples = 32, .bf16 = true};
  int64_t compared = 0;
  TrainConfig may_gather = t.config;
  may_gather.fp8_param_gather = true;
  for (Layout layout : enumerate_layouts(space, may_gather, {})) {
    layout.recompute = static_cast<Layout::Recompute>(compared % 4);
    layout.cpu_offload = compared % 5 == 0;
    TrainConfig applied = t.config, read = t.config;
    Given given, said;
    apply(layout, {}, applied, given);
    const std::vector<std::string> words = words_of(layout, {});
    const std::vector<cli::Row> rows = cli::bind_rows(flag_table(), read);
    for (size_t i = 0; i < words.size(); ++i) {
      ASSERT_TRUE(words[i].starts_with("--")) << words[i];
      const auto row = std::find_if(rows.begin(), rows.end(), [&](const cli::Row& r) {
        return r.name == std::string_view(words[i]).substr(2);
      });
      ASSERT_NE(row, rows.end()) << words[i];
      row->set({row->arity == cli::Arity::none ? "true" : words[++i]});
    }
    EXPECT_EQ(flag_values(applied), flag_values(read)) << describe(layout);
    ++compared;
  }
  EXPECT_GT(compared, 100);
}

}  // namespace
}  // namespace trainer
