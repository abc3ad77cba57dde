// The card that is planned for, and what is said about a layout and its cost.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/auto_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tests/own.h"
#include "tools/cli/fields.h"
#include "trainer/session/layout_report.h"

namespace trainer {
namespace {

using testing::HasSubstr;
using testing::Not;
using Recompute = Layout::Recompute;

TrainConfig small_config() {
  TrainConfig config;
  config.num_layers = 4;
  config.hidden_size = 512;
  config.num_attention_heads = 8;
  config.seq_length = 1024;
  config.hidden_dropout = config.attention_dropout = 0;
  config.train_iters = 10;
  config.lr = 1e-4;
  config.dry_run = true;
  config.vocab_size = 50257;
  config.eod_id = 50256;
  config.max_global_batch_size = 16;
  return config;
}

TEST(PlannedCard, IsTheNamedOneOrTheFilesOrNone) {
  tests::OwnFolder own;
  TrainConfig config = small_config();
  EXPECT_FALSE(find_card(config).has_value()) << "there is no GPU in these tests";
  config.gpu = "h200";
  ASSERT_TRUE(find_card(config).has_value());
  Card card = find_card(config)->card;
  EXPECT_EQ(card.product, "NVIDIA H200");
  EXPECT_NO_THROW(check_planned_gpu(config));

  card.source = "a table of this test";
  std::ofstream(own / "card.json") << card_text(card);
  config.gpu = own / "card.json";
  ASSERT_TRUE(find_card(config).has_value());
  EXPECT_EQ(card_text(find_card(config)->card), card_text(card));
  EXPECT_NO_THROW(check_planned_gpu(config));

  std::ofstream(own / "card.json") << "{}";
  EXPECT_THROW(check_planned_gpu(config), std::runtime_error);
  config.gpu = own / "none";
  EXPECT_THROW(check_planned_gpu(config), cli::UsageError);
}

TEST(PlannedCard, MemoryAndNetworkAreTheCommands) {
  TrainConfig config = small_config();
  config.gpu = "h200";
  config.network_gb_per_s = 12.5;
  setenv("DEVICE_MEMORY_GB", "40", 1);
  const Card card = find_card(config)->card;
  unsetenv("DEVICE_MEMORY_GB");
  EXPECT_EQ(card.network_gb_per_s, 12.5);
  EXPECT_EQ(card.memory_gib, 0.99 * 40);
}

// Guesses, but in the right order: what is nearer is not slower.
TEST(PlannedCard, RanksOfAProcessorShareIt) {
  const Card alone = processor_card(1), one_of_four = processor_card(4);
  EXPECT_EQ(alone.memory_gib, 4 * one_of_four.memory_gib);
  EXPECT_EQ(alone.peak_tflops, 4 * one_of_four.peak_tflops);
  EXPECT_GT(1e3 * alone.memory_tb_per_s, alone.link_gb_per_s);
  EXPECT_GT(alone.link_gb_per_s, alone.network_gb_per_s);
  EXPECT_EQ(alone.multiprocessors, 0);
}

TEST(PlannedCard, SaysWhatWasMeasured) {
  Card card = processor_card(1);
  EXPECT_EQ(basis_of(card), "of a processor: not measured");
  card.measured = true;
  card.source = "today";
  EXPECT_EQ(basis_of(card), "of this processor: today");
  card.multiprocessors = 132;
  card.product = "NVIDIA H200";
  EXPECT_EQ(basis_of(card), "NVIDIA H200: today; collectives not measured");
  card.measured_transfers = true;
  EXPECT_EQ(basis_of(card), "NVIDIA H200: today");
  card.measured = false;
  EXPECT_EQ(basis_of(card), "NVIDIA H200: today; not measured");
  card.product = "a\nb";
  card.source = "\x1b[2Jc";
  EXPECT_EQ(basis_of(card), "a\\nb: \\x1b[2Jc; not measured");
  card.multiprocessors = 0;
  card.measured = true;
  EXPECT_EQ(basis_of(card), "of this processor: \\x1b[2Jc");
}

/// What is said on two cards of so many GB.
std::string said_of_choice(TrainConfig& config, Given& given, const char* gigabytes) {
  setenv("DEVICE_MEMORY_GB", gigabytes, 1);
  testing::internal::CaptureStderr();
  {
    cli::Console console("trainer");
    choose_layout(config, given, {.world_size = 2, .local_size = 2}, console);
  }
  unsetenv("DEVICE_MEMORY_GB");
  return testing::internal::GetCapturedStderr();
}

TEST(PlannedCard, TheChoiceSaysMemoryOfTheDeviceAndFlags) {
  TrainConfig config = small_config();
  config.gpu = "h200";
  Given given;
  const std::string said = said_of_choice(config, given, "40");
  EXPECT_THAT(said,
              testing::ContainsRegex(
                  "it will take [0-9.]+ GiB of 39.6 GiB a device and about [0-9.]+ ms a step"));
  EXPECT_THAT(said, HasSubstr("the same as flags: --micro-batch-size"));
  EXPECT_THAT(said, testing::ContainsRegex("a step, [0-9,]+ tokens/s \\(NVIDIA H200: "));
  EXPECT_TRUE(given.contains("micro-batch-size"));
  EXPECT_TRUE(config.global_batch_size.has_value());
  EXPECT_LE(*config.global_batch_size, 16);
}

TEST(PlannedCard, AStepThatTakesNoTimeIsNotZeroSeconds) {
  TrainConfig config = small_config();
  config.gpu = "h200";
  config.hidden_size = 64;
  config.num_layers = 1;
  config.seq_length = 64;
  config.vocab_size = 1000;
  config.eod_id = 1;
  config.max_global_batch_size = 2;
  Given given;
  EXPECT_THAT(said_of_choice(config, given, "40"), HasSubstr(" a device and under 1 ms a step"));
  config = small_config();
  config.gpu = "h200";
  config.num_layers = 64;
  config.hidden_size = 8192;
  config.num_attention_heads = 64;
  config.max_global_batch_size = 4;
  given.clear();
  EXPECT_THAT(said_of_choice(config, given, "4000"),
              testing::ContainsRegex(" a device and about [0-9.]+ s a step"));
}

TEST(PlannedCard, WhereNothingFitsTheNearestIsNamed) {
  TrainConfig config = small_config();
  config.gpu = "h200";
  Given given;
  try {
    said_of_choice(config, given, "1");
    FAIL();
  } catch (const cli::UsageError& error) {
    testing::internal::GetCapturedStderr();
    unsetenv("DEVICE_MEMORY_GB");
    EXPECT_THAT(error.what(),
                testing::MatchesRegex("no layout of [0-9]+ fits on 2 devices: the nearest, tensor "
                                      "[12].*, needs [0-9.]+ GiB of 1\\.0 GiB each"));
  }
}

TEST(LayoutText, NamesWhatIsUsedAndNothingElse) {
  EXPECT_EQ(describe(Layout{}), "tensor 1, pipeline 1, data 1, 1 x 1 sample");
  EXPECT_EQ(describe({.micro_batch_size = 2, .microbatches = 4, .data = 8, .overlap = true}),
            "tensor 1, pipeline 1, data 8, overlap, 4 x 2 samples");
  EXPECT_EQ(describe({.data = 2, .tensor = 2, .sequence_parallel = true, .zero_stage = 1}),
            "tensor 2 + sequence, pipeline 1, data 2, ZeRO 1, 1 x 1 sample");
  EXPECT_EQ(describe({.data = 2, .zero_stage = 3, .overlap = true}),
            "tensor 1, pipeline 1, data 2, ZeRO 3, overlap, 1 x 1 sample");
  EXPECT_EQ(describe({.data = 1, .zero_stage = 1}), "tensor 1, pipeline 1, data 1, 1 x 1 sample")
      << "one rank shares nothing";
  EXPECT_EQ(describe({.pipeline = 2, .schedule = "interleaved", .chunks = 3}),
            "tensor 1, pipeline 2 (interleaved, 3 chunks), data 1, 1 x 1 sample");
  EXPECT_EQ(describe({.recompute = Recompute::selective, .cpu_offload = true}),
            "tensor 1, pipeline 1, data 1, 1 x 1 sample, recompute selective, state on the host");
  EXPECT_EQ(describe({.recompute = Recompute::block, .recompute_layers = 3}),
            "tensor 1, pipeline 1, data 1, 1 x 1 sample, recompute 3 layers of a stage");
  EXPECT_EQ(describe({.micro_batch_size = 2, .recompute = Recompute::block}),
            "tensor 1, pipeline 1, data 1, 1 x 2 samples, recompute 1 layer of a stage");
  EXPECT_EQ(describe({.recompute = Recompute::full}),
            "tensor 1, pipeline 1, data 1, 1 x 1 sample, recompute full");
  EXPECT_EQ(describe({.recompute = Recompute::full, .recompute_layers = 2}),
            "tensor 1, pipeline 1, data 1, 1 x 1 sample, recompute full by 2");
}

TEST(LayoutText, BytesAreToldApart) {
  constexpr int64_t kGib = int64_t{1} << 30;
  EXPECT_EQ(bytes_of(2 * kGib, kGib), "2.0 GiB of 1.0 GiB");
  EXPECT_EQ(bytes_of(kGib + kGib / 100, kGib), "1.01 GiB of 1.00 GiB");
  EXPECT_EQ(bytes_of(kGib + 512, kGib), "1.0000005 GiB of 1.0000000 GiB");
  EXPECT_EQ(bytes_of(kGib, kGib), "1.0 GiB of 1.0 GiB");
}

TEST(LayoutText, TheLengthOfARunIsSaidWhereTheCommandGivesIt) {
  const Card card = card_of(*ops::find_gpu("h200"));
  const SearchTask task =
      search_task(small_config(), {}, {.world_size = 1, .local_size = 1}, card, 50257);
  const SearchResult result = search_layouts(task);
  ASSERT_FALSE(result.best.empty());
  EXPECT_THAT(text_report(result, {.task = task, .words = {}, .has_length = true}),
              HasSubstr("    run         10 steps, about "));
  EXPECT_THAT(text_report(result, {.task = task, .words = {}}), Not(HasSubstr("    run ")));
}

TEST(LayoutText, OneIsNoPlural) {
  TrainConfig config = small_config();
  config.train_iters = 1;
  config.micro_batch_size = 1;
  config.global_batch_size = 1;
  config.bf16 = true;
  SearchTask task = search_task(config, {"bf16"}, {.world_size = 1, .local_size = 1},
                                card_of(*ops::find_gpu("h200")), 50257);
  task.as_given = true;
  const std::string text =
      text_report(search_layouts(task), {.task = task, .words = {}, .has_length = true});
  EXPECT_THAT(text, HasSubstr("searched    1 layout in "));
  EXPECT_THAT(text, HasSubstr(" s of 1 sample: "));
  EXPECT_THAT(text, HasSubstr("    run         1 step, about "));
}

// An earlier choice's flags are as if nothing had set them; what a part has of one flag is the
// command's.
TEST(ChosenFlags, AreOpenedAgain) {
  TrainConfig config;
  const std::vector<std::string> all = open_flags({});
  std::vector<cli::Row> rows = cli::bind_rows(flag_table(), config);
  Given given = {"seq-length"};
  for (const std::string& name : all) {
    const auto row = std::ranges::find_if(rows, [&](const cli::Row& r) { return r.name == name; });
    ASSERT_NE(row, rows.end()) << name;
    const std::string text = row->arity == cli::Arity::none ? "true" : "3";
    row->set({row->choices.empty() ? text : row->choices.back()});
    const std::map<std::string, cli::Values> defaults = flag_values(TrainConfig());
    EXPECT_FALSE(defaults.contains(name) && defaults.at(name) == row->show()) << name;
    given.insert(name);
  }
  EXPECT_TRUE(open_flags(given).empty());
  config.chosen_flags = all;
  forget_chosen(config, {"bf16"});
  reopen(config, given);
  TrainConfig expected;
  expected.bf16 = true;
  EXPECT_EQ(flag_values(config), flag_values(expected));
  EXPECT_EQ(given, (Given{"seq-length", "bf16"}));
  EXPECT_THAT(
      open_flags({"pipeline-schedule"}),
      testing::AllOf(Not(testing::Contains("pipeline-schedule")), testing::Contains("zero-stage")));
  EXPECT_THAT(open_flags({"use-distributed-optimizer"}), Not(testing::Contains("zero-stage")));
  EXPECT_THAT(open_flags({"global-batch-size"}), Not(testing::Contains("global-batch-size")));
  for (const std::string& name : flags_of_choice()) EXPECT_THAT(all, testing::Contains(name));
}

// docs/glossary.md: 6 N + 6 L H S floating point operations a token.
TEST(LayoutText, UtilisationIsOfTheGlossarysOperations) {
  const Card card = card_of(*ops::find_gpu("h200"));
  SearchTask task =
      search_task(small_config(), {}, {.world_size = 4, .local_size = 4}, card, 50257);
  const SearchResult result = search_layouts(task);
  ASSERT_FALSE(result.best.empty());
  const Choice& best = result.best.front();
  const PlannedRun run = planned_run(task, best.layout);
  const double parameters = static_cast<double>(count_parameters(run.spec));
  EXPECT_GT(parameters, 38e6);  // 4 x 12 x 512^2, and the embeddings.
  const double flops = 6 * (parameters + 4.0 * 512 * 1024);
  EXPECT_NEAR(best.report.mfu,
              best.report.tokens_per_second * flops / (4 * card.peak_tflops * 1e12),
              1e-9 * best.report.mfu);
  EXPECT_LT(best.report.mfu, 1);
}

}  // namespace
}  // namespace trainer
