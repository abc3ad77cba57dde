// The parts between the engine and the rest: a model through its JSON form, an engine through a
// checkpoint, the decoder against the engine's own loss, sampling.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "convert/hf_folder.h"
#include "convert/trainer_source.h"
#include "libindexed/format.h"
#include "trainer/generation/decoder.h"
#include "trainer/generation/decoder_weights.h"
#include "trainer/generation/sampling.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/session/assembly.h"
#include "trainer/session/interval_clock.h"
#include "trainer/session/memory_start.h"
#include "trainer/session/snapshot.h"
#include "trainer/session/stop.h"
#include "trainer/session/vocabulary.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

ModelSpec small_spec(const std::string& family) {
  ModelSpec spec = family_defaults(family == "opt_post" ? "opt" : family);
  spec.post_norm = family == "opt_post";
  if (spec.post_norm) spec.embedding_size = 20;
  spec.num_layers = 2;
  spec.hidden_size = 32;
  spec.num_attention_heads = 4;
  if (spec.gated()) spec.num_query_groups = 2;
  if (family == "qwen3" || family == "mistral") spec.kv_channels = 12;
  if (family == "mistral") spec.sliding_window = 5;
  spec.max_position_embeddings = 24;
  spec.vocab_size = 64;
  spec.padded_vocab_size = 64;
  spec.hidden_dropout = spec.attention_dropout = 0;
  spec.init_method_std = 0.2f;
  complete(spec);
  return spec;
}

EngineOptions small_options() {
  EngineOptions options;
  options.seq_length = 12;
  options.micro_batch_size = 1;
  return options;
}

// A snapshot into a checkpoint, and that into an engine of other weights.
TEST(Snapshot, AnEngineComesBackFromItsCheckpoint) {
  std::string folder = fs::temp_directory_path() / "session_test.XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  ops::cpu::CpuOps ops(1);
  const ModelSpec spec = small_spec("gpt2");
  Engine first(spec, small_options(), ops);
  first.initialise();
  const HostBatch batch = first.host_batch();
  std::iota(batch.tokens.begin(), batch.tokens.end(), 0);
  std::iota(batch.labels.begin(), batch.labels.end(), 1);
  std::iota(batch.positions.begin(), batch.positions.end(), 0);
  std::ranges::fill(batch.loss_mask, 1.0f);
  first.step(1, 1, 0.01f, 0.01f);
  CheckpointMeta meta;
  store_state(first.result(), meta.state);
  Snapshot snapshot(first, true, false);
  snapshot.take();
  snapshot.wait();
  CheckpointRoot(folder).save(meta, snapshot.shards(), 0);

  EngineOptions other = small_options();
  other.seed = 99;
  Engine second(spec, other, ops);
  second.initialise();
  Checkpoint checkpoint = Checkpoint::open(iteration_folder(folder, 0));
  load_tensors(second, checkpoint, true);
  second.set_state(restore_state(checkpoint.meta().state));
  EXPECT_EQ(second.state().updates, 1);
  Snapshot again(second, true, false);
  again.take();
  ASSERT_EQ(again.shards().size(), snapshot.shards().size());
  for (size_t i = 0; i < again.shards().size(); ++i) {
    const ShardSource &a = snapshot.shards()[i], &b = again.shards()[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_TRUE(std::ranges::equal(a.bytes, b.bytes)) << a.group << " " << a.name;
  }
  fs::remove_all(folder);
}

// What the start says a checkpoint takes is what its tensors take: weights in the model's dtype,
// main weights beside those of 16 bits, and the optimizer's state in the dtype that it is kept in.
TEST(Snapshot, HasTheBytesThatTheStartSays) {
  ops::cpu::CpuOps ops(1);
  const ModelSpec spec = small_spec("llama");
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::muon}) {
    for (const DType moments : {DType::f32, DType::bf16}) {
      EngineOptions options = small_options();
      options.optimizer = kind;
      options.moment_dtype = moments;
      Engine engine(spec, options, ops);
      engine.initialise();
      for (const bool optimizer : {true, false}) {
        Snapshot snapshot(engine, optimizer, false);
        snapshot.take();
        size_t bytes = 0;
        for (const ShardSource& shard : snapshot.shards()) bytes += shard.bytes.size();
        EXPECT_GT(bytes, 4 * 20'000u);
        EXPECT_EQ(checkpoint_bytes(spec, options, optimizer), static_cast<int64_t>(bytes))
            << static_cast<int>(kind) << " " << ops::name(moments);
      }
    }
  }
}

TEST(LocalPieces, AGateAndItsUpAreTwoBoxes) {
  LocalParam param;
  param.spec.shape = {16, 3};
  param.spec.split = 0;
  param.spec.split_parts = 2;
  param.shape = {8, 3};
  param.first = 4;
  EXPECT_THAT(local_pieces(param, {0, 24}),
              ElementsAre(Piece::box({4, 0}, {4, 3}), Piece::box({12, 0}, {4, 3})));
  EXPECT_THAT(local_pieces(param, {5, 10}),
              ElementsAre(Piece{{4, 0}, {4, 3}, 5, 7}, Piece{{12, 0}, {4, 3}, 0, 3}));
  EXPECT_THAT(local_pieces(param, {12, 3}), ElementsAre(Piece{{12, 0}, {4, 3}, 0, 3}));
}

class DecoderTest : public testing::TestWithParam<const char*> {};

// The loss that the engine finds for a sequence is the loss of the decoder's scores, whether the
// decoder gets it at once or token by token.
TEST_P(DecoderTest, AgreesWithTheEnginesLoss) {
  ops::cpu::CpuOps ops(1);
  const ModelSpec spec = small_spec(GetParam());
  Engine engine(spec, small_options(), ops);
  engine.initialise();
  const std::vector<int32_t> tokens = {3, 14, 15, 9, 2, 6, 5, 35, 8, 49, 7, 9, 3};
  const HostBatch batch = engine.host_batch();
  for (size_t s = 0; s < 12; ++s) {
    batch.tokens[s] = tokens[s];
    batch.labels[s] = tokens[s + 1];
    batch.positions[s] = static_cast<int32_t>(s);
    batch.loss_mask[s] = 1;
    if (!batch.first_key.empty())
      batch.first_key[s] = std::max(0, static_cast<int32_t>(s + 1 - size_t(spec.sliding_window)));
  }
  const float loss = engine.evaluate(1);
  Decoder decoder(spec, DType::f32, 20, ops);
  std::map<std::string, Tensor> weights;
  for (const ParamView& view : engine.parameters()) weights[view.param->spec.name] = view.main;
  for (const Decoder::Parameter& p : decoder.parameters())
    ops.run(ops::Copy{p.tensor.flat(), weights.at(p.param->spec.name).flat()});

  double sum = 0;
  std::vector<float> scores;
  for (size_t s = 0; s < 12; ++s) {
    scores = decoder.append(std::span(&tokens[s], 1));
    double total = 0;
    for (const float score : scores) total += std::exp(double{score});
    sum += std::log(total) - double{scores[static_cast<size_t>(tokens[s + 1])]};
  }
  EXPECT_NEAR(sum / 12, double{loss}, 1e-5);
  EXPECT_EQ(decoder.length(), 12);
  decoder.reset();
  const std::vector<float> at_once = decoder.append(std::span(tokens).first(12));
  ASSERT_EQ(at_once.size(), 64u);
  for (size_t i = 0; i < at_once.size(); ++i)
    EXPECT_NEAR(at_once[i], scores[i], 1e-4f * (1 + std::fabs(scores[i])));
  EXPECT_THROW(decoder.append(std::vector<int32_t>(9, 1)), ShapeError);
}

INSTANTIATE_TEST_SUITE_P(Families, DecoderTest,
                         testing::Values("gpt2", "gpt_neox", "llama", "mistral", "qwen2", "qwen3",
                                         "opt_post"));

// A dropout that training would refuse beside a parallel residual is nothing to generation.
TEST(Decoder, TakesACheckpointOfAnyDropout) {
  std::string folder = fs::temp_directory_path() / "session_test.XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  convert::CanonicalModel model =
      convert::read_hf_folder(std::string(GOLDEN_DIR) + "/convert/families/gpt_neox");
  model.spec.hidden_dropout = 0.25f;
  convert::write_trainer_checkpoint(model, folder, 16);
  EXPECT_NO_THROW(open_decoder_model(folder, std::nullopt));
  fs::remove_all(folder);
}

// The folders of transformers that the converters' tests are made of, read by generate.
class FolderDecoderTest : public testing::TestWithParam<const char*> {};

TEST_P(FolderDecoderTest, AgreesWithTransformers) {
  const std::string folder = std::string(GOLDEN_DIR) + "/convert/families/" + GetParam();
  const nlohmann::json want = nlohmann::json::parse(std::ifstream(folder + "/expected.json"));
  ops::cpu::CpuOps ops(1);
  const DecoderModel model = open_decoder_model(folder, std::nullopt);
  Decoder decoder(model.spec, DType::f32, model.spec.max_position_embeddings, ops);
  model.load(decoder, ops);
  size_t row = 0;
  for (const int32_t token : want.at("tokens").get<std::vector<int32_t>>()) {
    const std::vector<float> scores = decoder.append(std::span(&token, 1));
    const std::vector<float> wanted = want.at("logits")[row++].get<std::vector<float>>();
    for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(scores[i], wanted[i], 2e-5) << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FolderDecoderTest,
                         testing::Values("gpt2", "opt", "opt_350m", "opt_gelu", "gpt_neox", "llama",
                                         "llama_biases", "llama_linear", "mistral", "qwen2",
                                         "qwen3"));

// Three ranks of steps of 10 ms: one works 9 of them, the others 5.
// A file that is named and not opened, because another flag wins, is named.
TEST(Vocabulary, FilesWithoutEffectAreNamed) {
  const auto note = [](const TrainConfig& config) { return find_vocabulary(config).note; };
  const std::string golden(GOLDEN_DIR);
  TrainConfig config;
  config.tokenizer_type = "NullTokenizer";
  config.vocab_size = 100;
  const std::string counted =
      "NullTokenizer: --vocab-size 100 is ids 0 to 99, as from megatron-core 0.18 on, and the last "
      "one ends documents; earlier releases add an id for that: give 101";
  EXPECT_EQ(note(config), counted);
  config.vocab_file = "v.json";
  config.merge_file = "m.txt";
  config.tokenizer_model = "x.model";
  EXPECT_EQ(note(config),
            "--vocab-file v.json, --merge-file m.txt, --tokenizer-model x.model: no effect beside "
            "--tokenizer-type NullTokenizer; " +
                counted);
  TrainConfig model;
  model.tokenizer_model = golden + "/tok/sentencepiece/llama.json";
  EXPECT_EQ(note(model), "");
  model.tiktoken_pattern = "v1";
  EXPECT_EQ(note(model), "no effect here: --tiktoken-pattern");
  model.tiktoken_pattern = "";
  model.tokenizer_type = "HuggingFaceTokenizer";
  model.merge_file = "m.txt";
  EXPECT_EQ(note(model), "--merge-file m.txt: no effect beside --tokenizer-model");
  model.vocab_file = "v.json";
  EXPECT_EQ(note(model),
            "--vocab-file v.json, --merge-file m.txt: no effect beside --tokenizer-model");
  TrainConfig sentences;
  sentences.tokenizer_model = golden + "/tok/sentencepiece/llama.model";
  sentences.tokenizer_type = "SentencePieceTokenizer";
  EXPECT_EQ(note(sentences), "");
  sentences.eod_mask_loss = true;
  EXPECT_EQ(note(sentences),
            "documents end with <EOD> (1502), as in Megatron before core 0.16; since then with the "
            "model's eos: --eod-id");
  sentences.eod_id = 2;
  EXPECT_EQ(note(sentences), "");
  TrainConfig pair;
  pair.vocab_file = golden + "/tools/vocab.json";
  pair.merge_file = golden + "/tools/merges.txt";
  EXPECT_EQ(note(pair), "");
}

TEST(IntervalClock, TheRankThatWorksLongestIsTheSlowest) {
  IntervalClock clock;
  clock.add(0.008, 0.001, 0.002, 100);
  clock.add(0.012, 0.003, 0.004, 100);
  const RankTimes mean = RankTimes::from_text(clock.times(5, 7).text());
  EXPECT_DOUBLE_EQ(mean.step, 0.010);
  EXPECT_DOUBLE_EQ(mean.data, 0.002);
  EXPECT_DOUBLE_EQ(*mean.communication, 0.003);
  EXPECT_EQ(mean.planned_bytes, 7);
  EXPECT_DOUBLE_EQ(clock.tokens_per_second(), 1e4);
  std::vector<RankTimes> ranks(3, {.step = 0.010, .communication = 0.005, .peak_bytes = 4});
  ranks[1] = {.step = 0.010, .data = 0.002, .communication = 0.001, .peak_bytes = 3};
  ranks[2].peak_bytes = 6;
  ranks[2].planned_bytes = 8;
  IterationRecord record;
  add_ranks(ranks, record);
  EXPECT_EQ(record.slowest->rank, 1);
  EXPECT_NEAR(record.slowest->cost_seconds, 0.009 - 0.019 / 3, 1e-12);
  EXPECT_DOUBLE_EQ(record.slowest->communication_seconds, 0.001);
  EXPECT_DOUBLE_EQ(record.data_wait_seconds, 0.002);
  EXPECT_EQ(record.peak_memory_bytes, 6);
  EXPECT_EQ(record.planned_memory_bytes, 8);
  // A device that cannot measure, and a single rank.
  ranks[0] = RankTimes::from_text(RankTimes{.step = 0.010}.text());
  IterationRecord unknown, alone;
  add_ranks(ranks, unknown);
  EXPECT_FALSE(unknown.slowest.has_value());
  add_ranks(std::span(ranks).first(1), alone);
  EXPECT_FALSE(alone.slowest.has_value());
  clock.restart();
  EXPECT_EQ(clock.times(0, 0).step, 0);
  EXPECT_THROW(RankTimes::from_text("1 2 3"), std::runtime_error);
}

// Signals that come together are one request; a later one does not wait for the checkpoint.
TEST(StopRequest, OnlyALaterSignalEndsTheProcess) {
  const auto told = [] {
    StopRequest stop(std::nullopt, "");
    if (stop.reason()) _exit(1);
    for (const int number : {SIGUSR1, SIGTERM, SIGTERM}) std::raise(number);
    if (stop.reason() != "SIGUSR1") _exit(2);
    std::this_thread::sleep_for(StopRequest::kTogether);
    std::raise(SIGTERM);
    _exit(3);
  };
  EXPECT_EXIT(told(), testing::KilledBySignal(SIGTERM), "");
}

// The smallest set whose probabilities reach p: of four equal ones, two reach a half.
TEST(ChooseToken, TakesNoMoreThanReachTopP) {
  const std::vector<float> scores = {2.0f, 2.0f, 2.0f, 2.0f};
  for (const auto& [top_p, kept] :
       {std::pair(0.25, 1u), {0.26, 2u}, {0.5, 2u}, {0.75, 3u}, {1.0, 4u}}) {
    std::mt19937_64 random(3);
    std::map<int32_t, int> counts;
    for (int i = 0; i < 400; ++i) ++counts[choose_token(scores, {.top_p = top_p}, random)];
    EXPECT_EQ(counts.size(), kept) << top_p;
  }
}

TEST(ChooseToken, GreedyAndBounds) {
  std::mt19937_64 random(1);
  const std::vector<float> scores = {1.0f, 3.0f, -90.0f, 3.0f, -2.0f};
  EXPECT_EQ(choose_token(scores, {.greedy = true}, random), 1);
  EXPECT_EQ(choose_token(scores, {.temperature = 0}, random), 1);
  EXPECT_EQ(choose_token(scores, {.top_k = 1}, random), 1);
  std::map<int32_t, int> counts;
  for (int i = 0; i < 20000; ++i) ++counts[choose_token(scores, {}, random)];
  // exp(1), exp(3), exp(3), exp(-2) over their sum 43.03: 0.0632, 0.4668, 0.4668, 0.0031.
  EXPECT_NEAR(counts[0], 1263, 150);
  EXPECT_NEAR(counts[1], 9336, 300);
  EXPECT_NEAR(counts[3], 9336, 300);
  EXPECT_NEAR(counts[4], 63, 40);
  EXPECT_EQ(counts[2], 0);
  counts.clear();
  for (int i = 0; i < 2000; ++i) ++counts[choose_token(scores, {.top_p = 0.9}, random)];
  EXPECT_EQ(counts[0] + counts[4], 0);
  counts.clear();
  for (int i = 0; i < 2000; ++i) ++counts[choose_token(scores, {.temperature = 100}, random)];
  EXPECT_GT(counts[4], 400);
}

// A choice among the other tokens would hide what the model computes.
TEST(ChooseToken, ScoresThatAreNotFiniteAreRefused) {
  const auto told = [](const std::vector<float>& scores) -> std::string {
    try {
      check_scores(scores, "run");
    } catch (const indexed::FormatError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(told({1.0f, -3e38f}), "accepted");
  EXPECT_EQ(told({1.0f, 2.0f, NAN, NAN}),
            "run: the score of token 2 is nan, expected a finite number");
  EXPECT_EQ(told({INFINITY, 1.0f}), "run: the score of token 0 is inf, expected a finite number");
  EXPECT_EQ(told({1.0f, -INFINITY}), "run: the score of token 1 is -inf, expected a finite number");
}

TEST(ChooseToken, TheSeedDecides) {
  std::vector<float> scores(1000);
  std::iota(scores.begin(), scores.end(), 0.0f);
  for (float& score : scores) score *= 0.001f;
  const auto draw = [&](uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<int32_t> out;
    for (int i = 0; i < 5; ++i) out.push_back(choose_token(scores, {}, random));
    return out;
  };
  EXPECT_EQ(draw(7), draw(7));
  EXPECT_NE(draw(7), draw(8));
}

}  // namespace
}  // namespace trainer
