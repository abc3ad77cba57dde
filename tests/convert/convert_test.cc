// SPDX-License-Identifier: MIT
// One tiny GPT-2 out of every layout that Megatron has written it in, and back: each conversion
// must give the same tensors, bit for bit. Golden: tests/golden/convert/gpt2, made and loaded with
// transformers by tests/reference/convert_golden.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "convert/hf_folder.h"
#include "convert/megatron_source.h"
#include "convert/megatron_target.h"
#include "convert/plain_forward.h"
#include "convert/torch_file.h"
#include "convert/trainer_source.h"
#include "convert/verify.h"
#include "libindexed/format.h"
#include "tests/convert/outcomes.h"
#include "tests/own.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/spec/model_fields.h"

namespace convert {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int64_t kVocabSize = 261;

std::string golden(const std::string& name) {
  return std::string(GOLDEN_DIR) + "/convert/gpt2/" + name;
}

const json& expected() {
  static const json tree = json::parse(read_file(golden("expected.json")));
  return tree;
}

uint32_t digest(std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

TokenizerFiles tokenizer() {
  return tokenizer_from_vocab(golden("vocab.json"), golden("merges.txt"), 16);
}

CanonicalModel read_golden(const std::string& name) {
  SourceOptions options;
  if (name == "v0.pt") options.num_attention_heads = 4;
  CanonicalModel model = read_megatron(golden(name), options);
  trim_vocabulary(model, kVocabSize);
  return model;
}

// Megatron's tools fill padding with the last token's row: nothing of size zero or at random.
void expect_padding_repeats_the_last_row(const CanonicalModel& model) {
  const TensorSource& words = model.at("embedding.word_embeddings.weight");
  ASSERT_EQ(words.rows(), model.spec.padded_vocab_size);
  const std::vector<std::byte> rows = words.load();
  const auto row = [&](int64_t i) { return rows.begin() + i * words.row_bytes(); };
  for (int64_t i = kVocabSize; i < words.rows(); ++i)
    EXPECT_TRUE(std::equal(row(i), row(i) + words.row_bytes(), row(kVocabSize - 1))) << i;
  EXPECT_FALSE(std::equal(row(kVocabSize - 1), row(kVocabSize), row(kVocabSize - 2)));
}

class ConvertTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ / name; }

  // The folder's tensors are exactly the expected ones.
  static void expect_tensors(const std::string& folder, const std::string& kind,
                             const std::string& more = "") {
    json want = expected().at(kind);
    if (!more.empty()) want.update(expected().at(more));
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() != ".safetensors") continue;
      const auto file = trainer::SafetensorsFile::open(entry.path());
      EXPECT_EQ(file.metadata().at("format"), "pt") << "transformers refuses a file without";
      for (const trainer::TensorEntry& tensor : file.tensors()) {
        ASSERT_TRUE(want.contains(tensor.name)) << tensor.name;
        EXPECT_EQ(tensor.shape, want[tensor.name][0].get<std::vector<int64_t>>()) << tensor.name;
        EXPECT_EQ(digest(file.bytes(tensor)), want[tensor.name][1].get<uint32_t>()) << tensor.name;
        want.erase(tensor.name);
      }
    }
    EXPECT_TRUE(want.empty()) << want.begin().key() << " is missing";
  }

  tests::OwnFolder folder_;
};

// Its norms are stored in fp64, which the trainer does not read.
TEST_F(ConvertTest, WeightsOf64BitsNeedADtypeForTheTrainer) {
  const CanonicalModel model = read_golden("one_p.pt");
  EXPECT_THAT([&] { write_start(model, tokenizer(), {.path = path("start")}); },
              testing::ThrowsMessage<indexed::FormatError>(testing::HasSubstr("dtype F64")));
  EXPECT_FALSE(std::filesystem::exists(path("start")));
  write_start(model, tokenizer(), {.path = path("start"), .dtype = "F32"});
}

class LayoutTest : public ConvertTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(LayoutTest, BecomesTheSameModel) {
  const std::string name = GetParam();
  const CanonicalModel model = read_golden(name);
  HfTarget target{.folder = path("hf")};
  if (name == "one_p.pt")
    target.dtype = "F32";  // its norms are stored in fp64, so that -1 is exact
  const HfResult result = write_hf_folder(model, choose_family(model.spec), tokenizer(), target);
  EXPECT_TRUE(result.notes.empty());
  expect_tensors(path("hf"), name == "bf16.pt" ? "bf16" : "fp32",
                 name == "untied.pt" ? "untied" : "");
  const json config = json::parse(read_file(path("hf/config.json")));
  EXPECT_EQ(config.at("model_type"), "gpt2");
  EXPECT_EQ(config.at("vocab_size"), kVocabSize);
  EXPECT_EQ(config.at("n_inner"), 20);
  EXPECT_EQ(config.at("n_head"), 4);
  EXPECT_EQ(config.at("eos_token_id"), 260);
  EXPECT_EQ(config.at("activation_function"), "gelu_new");
  EXPECT_EQ(config.at("layer_norm_epsilon"), 1e-5);
  EXPECT_EQ(config.at("tie_word_embeddings"), name != "untied.pt");
  EXPECT_EQ(config.at("torch_dtype"), name == "bf16.pt" ? "bfloat16" : "float32");
}

INSTANTIATE_TEST_SUITE_P(Megatron, LayoutTest,
                         ::testing::Values("v0.pt", "v1.pt", "v2.pt", "v3.pt", "norm.pt", "te.pt",
                                           "core.pt", "core_te.pt", "one_p.pt", "bf16.pt",
                                           "untied.pt", "tp2pp2", "tp2v0", "virtual", "deepspeed",
                                           "deepspeed_plain", "zero3"),
                         [](const auto& info) {
                           const std::string name = info.param;
                           return name.substr(0, name.find('.'));
                         });

class FamilyTest : public ConvertTest, public ::testing::WithParamInterface<const char*> {};

// A folder that transformers wrote: its logits are ours, and written again it has the same bytes.
TEST_P(FamilyTest, FoldersOfTransformersAreReadAndWritten) {
  const std::string folder = std::string(GOLDEN_DIR) + "/convert/families/" + GetParam();
  const json want = json::parse(read_file(folder + "/expected.json"));
  const CanonicalModel model = read_hf_folder(folder);
  const std::vector<int32_t> tokens = want.at("tokens").get<std::vector<int32_t>>();
  for (const QkvRoad road : {QkvRoad::fused, QkvRoad::apart}) {
    const std::vector<float> logits = plain_forward(model, tokens, road);
    const size_t width = logits.size() / tokens.size();
    for (size_t row = 0; row < tokens.size(); ++row)
      for (size_t i = 0; i < width; ++i)  // sums of 48 products of about 1, in another order
        ASSERT_NEAR(logits[row * width + i], want.at("logits")[row][i].get<float>(), 2e-5);
  }
  const Family& family = choose_family(model.spec);
  EXPECT_TRUE(std::string(GetParam()).starts_with(family.name));
  write_hf_folder(model, family, {}, {.folder = path("hf")});
  const auto file = trainer::SafetensorsFile::open(path("hf/model.safetensors"));
  EXPECT_EQ(file.tensors().size(), want.at("tensors").size());
  for (const trainer::TensorEntry& tensor : file.tensors()) {
    const json& row = want.at("tensors").at(tensor.name);
    EXPECT_EQ(tensor.shape, row[0].get<std::vector<int64_t>>()) << tensor.name;
    EXPECT_EQ(digest(file.bytes(tensor)), row[1].get<uint32_t>()) << tensor.name;
  }
  EXPECT_EQ(trainer::model_record(read_hf_folder(path("hf")).spec),
            trainer::model_record(model.spec));
  // Through the trainer's checkpoint, padded there and trimmed again.
  write_trainer_checkpoint(model, path("run"), 64);
  CanonicalModel back = read_trainer_checkpoint(path("run"), std::nullopt, false);
  trim_vocabulary(back, model.spec.vocab_size);
  EXPECT_EQ(trainer::model_record(back.spec), trainer::model_record(model.spec));
  for (const auto& [name, source] : model.tensors)
    EXPECT_EQ(back.at(name).load(), source.load()) << name;
}

// Through Megatron's arguments and names, which give everything but the family.
TEST_P(FamilyTest, GoesThroughMegatronsFileOrIsRefused) {
  const CanonicalModel model =
      read_hf_folder(std::string(GOLDEN_DIR) + "/convert/families/" + GetParam());
  const bool spoken = model.spec.position_offset == 0 && !model.spec.parallel_residual &&
                      !model.spec.attention_bias && !model.spec.rotary_scaling;
  for (const bool core : {false, true}) {
    const MegatronTarget target{.path = path(core ? "core" : "legacy"), .core_names = core};
    if (!spoken) {
      EXPECT_THAT(error_of([&] { write_megatron(model, {}, target); }), HasSubstr("Megatron-LM"));
      continue;
    }
    write_megatron(model, {}, target);
    CanonicalModel back = read_megatron(target.path, {});
    trim_vocabulary(back, model.spec.vocab_size);
    back.spec.family = model.spec.family;
    EXPECT_EQ(trainer::model_record(back.spec), trainer::model_record(model.spec));
    for (const auto& [name, source] : model.tensors)
      EXPECT_EQ(back.at(name).load(), source.load()) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(HuggingFace, FamilyTest,
                         ::testing::Values("gpt2", "opt", "opt_350m", "opt_gelu", "gpt_neox",
                                           "gpt_neox_serial", "llama", "llama_biases",
                                           "llama_linear", "mistral", "mistral_whole", "qwen2",
                                           "qwen3", "gpt2_bin", "llama_bin"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(ConvertTest, AHeadThatDiffersFromATiedEmbeddingIsKept) {
  const CanonicalModel model = read_golden("untied.pt");
  write_hf_folder(model, *find_family("gpt2"), tokenizer(), {.folder = path("hf")});
  json config = json::parse(read_file(path("hf/config.json")));
  config["tie_word_embeddings"] = true;
  std::ofstream(path("hf/config.json")) << config;
  const CanonicalModel back = read_hf_folder(path("hf"));
  EXPECT_FALSE(back.spec.tied_embeddings);
  ASSERT_EQ(back.notes.size(), 1U);
  EXPECT_EQ(back.at("output_layer.weight").load(), model.at("output_layer.weight").load());
}

TEST_F(ConvertTest, ForwardEqualsTransformers) {
  const CanonicalModel model = read_golden("v3.pt");
  const std::vector<int32_t> tokens = expected().at("tokens").get<std::vector<int32_t>>();
  for (const QkvRoad road : {QkvRoad::fused, QkvRoad::apart}) {
    const std::vector<float> logits = plain_forward(model, tokens, road);
    for (size_t row = 0; row < tokens.size(); ++row)
      for (size_t i = 0; i < 8; ++i)
        EXPECT_NEAR(logits[row * kVocabSize + i], expected().at("logits")[row][i].get<float>(),
                    1e-5);
  }
}

TEST_F(ConvertTest, ShardsHoldTheSameTensors) {
  const CanonicalModel model = read_golden("v3.pt");
  const HfTarget target{.folder = path("hf"), .max_shard_bytes = 4000};
  const HfResult result = write_hf_folder(model, *find_family("gpt2"), tokenizer(), target);
  EXPECT_GT(result.shards, 3);
  expect_tensors(path("hf"), "fp32");
  const json index = json::parse(read_file(path("hf/model.safetensors.index.json")));
  EXPECT_EQ(index.at("metadata").at("total_size"), result.bytes);
  EXPECT_EQ(index.at("weight_map").size(), static_cast<size_t>(result.tensors));
  const CanonicalModel back = read_hf_folder(path("hf"));
  EXPECT_EQ(back.tensors.size(), model.tensors.size());
  // A smaller model written over it leaves no shard of the larger behind.
  EXPECT_THAT(error_of([&] { write_hf_folder(model, *find_family("gpt2"), tokenizer(), target); }),
              HasSubstr("config.json"));
  write_hf_folder(model, *find_family("gpt2"), tokenizer(),
                  {.folder = path("hf"), .replace = true});
  EXPECT_FALSE(fs::exists(path("hf/model.safetensors.index.json")));
  expect_tensors(path("hf"), "fp32");
}

TEST_F(ConvertTest, AFolderReadBackIsTheModel) {
  const CanonicalModel model = read_golden("untied.pt");
  write_hf_folder(model, *find_family("gpt2"), tokenizer(), {.folder = path("hf")});
  const CanonicalModel back = read_hf_folder(path("hf"));
  ASSERT_EQ(back.tensors.size(), model.tensors.size());
  for (const auto& [name, source] : model.tensors) {
    EXPECT_EQ(back.at(name).shape, source.shape) << name;
    EXPECT_EQ(back.at(name).load(), source.load()) << name;
  }
  EXPECT_EQ(back.spec.family, "gpt2");  // which a file of Megatron's does not say
  std::map<std::string, std::string> said = trainer::model_record(model.spec);
  said["family"] = "gpt2";
  EXPECT_EQ(trainer::model_record(back.spec), said);
}

/// What no model here has is off in the arguments, and the tokenizer is where its files are.
void expect_arguments(const std::string& folder) {
  std::string file;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".pt") file = entry.path();
  const TorchFile torch(file);
  const Value args = torch.root().find("args");
  for (const char* name : {"squared_relu", "openai_gelu", "onnx_safe", "rotary_interleaved",
                           "apply_layernorm_1p", "apply_query_key_layer_scaling",
                           "apply_residual_connection_post_layernorm", "sequence_parallel"})
    EXPECT_EQ(args.attribute(name).integer(), 0) << name;
  EXPECT_EQ(args.attribute("tokenizer_name_or_path").text(), folder + "/tokenizer");
}

TEST_F(ConvertTest, ToMegatronAndBack) {
  const CanonicalModel model = read_golden("v1.pt");
  for (const bool core : {false, true})
    for (const bool ordered : {false, true}) {
      const std::string folder =
          path(std::string(core ? "core" : "legacy") + (ordered ? "o" : "n"));
      MegatronTarget target{
          .path = folder, .core_names = core, .ordered_args = ordered, .divisible_by = 128};
      write_megatron(model, tokenizer(), target);
      expect_arguments(folder);
      CanonicalModel back = read_megatron(folder, {});
      EXPECT_EQ(back.spec.padded_vocab_size, 384) << "a multiple of 128";
      EXPECT_EQ(back.spec.vocab_size, kVocabSize);
      expect_padding_repeats_the_last_row(back);
      trim_vocabulary(back, kVocabSize);
      write_hf_folder(back, *find_family("gpt2"), tokenizer(), {.folder = folder + "/hf"});
      expect_tensors(folder + "/hf", "fp32");
    }
}

// Rows of padding count in the loss, so whoever continues needs those that were trained.
TEST_F(ConvertTest, PaddingStaysAsItWasTrained) {
  const std::string words = "embedding.word_embeddings.weight";
  CanonicalModel model = read_megatron(golden("tp2pp2"), {});
  model.spec.vocab_size = kVocabSize;
  const std::vector<std::byte> trained = model.at(words).load();
  const int64_t rows = model.spec.padded_vocab_size;
  ASSERT_GT(rows, kVocabSize + 1);
  const size_t row = trained.size() / static_cast<size_t>(rows);
  ASSERT_FALSE(std::equal(trained.end() - static_cast<std::ptrdiff_t>(row), trained.end(),
                          trained.begin() + static_cast<std::ptrdiff_t>(row * (kVocabSize - 1))))
      << "the last row is a copy: nothing would be seen";
  const auto rewritten = [&](int64_t unit) {
    const std::string start = path("start" + std::to_string(unit));
    write_trainer_checkpoint(model, start, unit);
    const std::string folder = path("megatron" + std::to_string(unit));
    write_megatron(model, tokenizer(), {.path = folder, .divisible_by = unit});
    const CanonicalModel run = read_trainer_checkpoint(start, std::nullopt, false);
    const CanonicalModel file = read_megatron(folder, {});
    EXPECT_EQ(run.spec.vocab_size, kVocabSize);
    EXPECT_EQ(run.at(words).load(), file.at(words).load()) << unit;
    return run.at(words).load();
  };
  EXPECT_EQ(rewritten(0), trained);
  const std::vector<std::byte> longer = rewritten(1 << 11), shorter = rewritten(1);
  ASSERT_EQ(longer.size(), row << 11);
  EXPECT_TRUE(std::equal(trained.begin(), trained.end(), longer.begin()));
  for (size_t at = trained.size(); at < longer.size(); at += row)
    ASSERT_TRUE(std::equal(trained.end() - static_cast<std::ptrdiff_t>(row), trained.end(),
                           longer.begin() + static_cast<std::ptrdiff_t>(at)));
  ASSERT_EQ(shorter.size(), row * kVocabSize);
  EXPECT_TRUE(std::equal(shorter.begin(), shorter.end(), trained.begin()));
}

// A unit is found that gives the size again, as the training command will need it.
TEST_F(ConvertTest, PaddingHasAUnit) {
  CanonicalModel model;
  const auto unit = [&](int64_t real, int64_t rows, int64_t wanted = 0) {
    model.spec.vocab_size = real;
    model.spec.padded_vocab_size = rows;
    const int64_t found = pad_vocabulary(model, wanted);
    return std::pair(found, model.spec.padded_vocab_size);
  };
  EXPECT_EQ(unit(538, 640), std::pair(int64_t{128}, int64_t{640}));
  EXPECT_EQ(unit(538, 768), std::pair(int64_t{256}, int64_t{768}));
  EXPECT_EQ(unit(97, 104), std::pair(int64_t{8}, int64_t{104}));
  EXPECT_EQ(unit(90, 104), std::pair(int64_t{104}, int64_t{104}));
  EXPECT_EQ(unit(538, 538), std::pair(int64_t{2}, int64_t{538}));
  EXPECT_EQ(unit(538, 538, 128), std::pair(int64_t{128}, int64_t{640}));
  EXPECT_EQ(unit(538, 640, 64), std::pair(int64_t{64}, int64_t{576}));
}

TEST_F(ConvertTest, ToTheTrainerAndBack) {
  const CanonicalModel model = read_golden("tp2pp2");
  EXPECT_FALSE(is_trainer_checkpoint(path("run"), std::nullopt));
  write_trainer_checkpoint(model, path("run"), 128);
  ASSERT_TRUE(is_trainer_checkpoint(path("run"), std::nullopt));
  CanonicalModel back = read_trainer_checkpoint(path("run"), std::nullopt, false);
  EXPECT_EQ(back.spec.padded_vocab_size, 384);
  EXPECT_EQ(back.spec.vocab_size, kVocabSize);
  expect_padding_repeats_the_last_row(back);
  trim_vocabulary(back, kVocabSize);
  EXPECT_EQ(trainer::model_record(back.spec), trainer::model_record(model.spec));
  write_hf_folder(back, *find_family("gpt2"), tokenizer(), {.folder = path("hf")});
  expect_tensors(path("hf"), "fp32");
}

TEST_F(ConvertTest, VerifyTellsEqualFromDifferent) {
  const CanonicalModel model = read_golden("v3.pt");
  write_hf_folder(model, *find_family("gpt2"), tokenizer(), {.folder = path("hf")});
  const VerifyReport same = verify_folder(model, path("hf"), "the cat in the hat");
  EXPECT_TRUE(same.equal) << same.summary();
  EXPECT_EQ(same.equal_choices, same.tokens);
  EXPECT_EQ(same.tokens, static_cast<int64_t>(same.by_position.size()));
  std::string longer;
  for (int i = 0; i < 500; ++i) longer += "the cat in the hat ";
  EXPECT_EQ(verify_folder(model, path("hf"), longer).tokens, model.spec.max_position_embeddings);
  // Heads of q exchanged: what a wrong order of rows does.
  CanonicalModel wrong = model;
  TensorSource& q = wrong.tensors.at("decoder.layers.1.self_attention.linear_q.weight");
  q = pick_rows(q, q.rows(), [](int64_t row) { return row ^ 2; });
  const VerifyReport other = verify_folder(wrong, path("hf"), "the cat in the hat");
  EXPECT_FALSE(other.equal) << other.summary();
  other.write(path("report.json"), false);
  EXPECT_EQ(json::parse(read_file(path("report.json"))).at("equal"), false);
}

// A NaN compares as neither larger nor smaller: nowhere may it pass for equal.
TEST_F(ConvertTest, VerifyRefusesWhatIsNotANumber) {
  CanonicalModel model = read_golden("v3.pt");
  TensorSource& norm = model.tensors.at("decoder.final_layernorm.bias");
  const TensorSource whole = norm;
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    norm.read_rows = [whole, value](int64_t first, int64_t count, std::byte* out) {
      whole.read_rows(first, count, out);
      if (first <= 3 && 3 < first + count) std::memcpy(out + (3 - first) * 4, &value, 4);
    };
    write_hf_folder(model, *find_family("gpt2"), tokenizer(),
                    {.folder = path("hf"), .replace = true});
    const VerifyReport report = verify_folder(model, path("hf"), "the cat in the hat");
    EXPECT_FALSE(report.equal) << report.summary();
  }
}

// Megatron-DeepSpeed writes Megatron's tracker beside DeepSpeed's, and global_stepN alone.
TEST_F(ConvertTest, RootsOfMegatronDeepspeedHaveTwoTrackers) {
  fs::copy(golden("deepspeed"), path("both"), fs::copy_options::recursive);
  std::ofstream(path("both/latest_checkpointed_iteration.txt")) << "4";
  EXPECT_EQ(resolve_checkpoint(path("both"), std::nullopt), path("both/global_step4"));
  EXPECT_EQ(resolve_checkpoint(path("both"), 4), path("both/global_step4"));
  EXPECT_THAT(error_of([&] { resolve_checkpoint(path("both"), 5); }),
              HasSubstr("iter_0000005: no such checkpoint"));
  fs::remove(path("both/latest"));  // its tracker alone names the same.
  EXPECT_EQ(resolve_checkpoint(path("both"), std::nullopt), path("both/global_step4"));
}

TEST_F(ConvertTest, WhatDoesNotFitIsRefused) {
  EXPECT_THAT(error_of([] { read_megatron(golden("v0.pt"), {}); }),
              HasSubstr("--num-attention-heads"));
  EXPECT_THAT(error_of([] {
                read_megatron(golden("tp2pp2/iter_0000010/mp_rank_00_000/model_optim_rng.pt"), {});
              }),
              HasSubstr("give the folder that holds all ranks"));
  EXPECT_THAT(error_of([] { read_megatron(golden("tp2pp2"), {.iteration = 11}); }),
              HasSubstr("iter_0000011: no such checkpoint"));
  EXPECT_THAT(error_of([] { read_megatron(golden("v3.pt"), {.strict_pickle = true}); }),
              HasSubstr("__main__.AttnBackend"));
  SourceOptions heads;
  heads.num_attention_heads = 3;
  EXPECT_THAT(error_of([&] { read_megatron(golden("v0.pt"), heads); }),
              HasSubstr("rows, expected"));
  fs::copy(golden("tp2pp2"), path("torn"), fs::copy_options::recursive);
  fs::remove_all(path("torn/iter_0000010/mp_rank_01_000"));
  EXPECT_THAT(error_of([&] { read_megatron(path("torn"), {}); }), HasSubstr("3 ranks, expected 2"));
  std::ofstream(path("torn/latest_checkpointed_iteration.txt")) << "ten";
  EXPECT_THAT(error_of([&] { read_megatron(path("torn"), {}); }),
              HasSubstr("neither a number nor"));
  const std::string step = path("zero3/global_step9/zero_pp_rank_");
  fs::copy(golden("zero3"), path("zero3"), fs::copy_options::recursive);
  fs::rename(step + "2_mp_rank_00_optim_states.pt", step + "9_mp_rank_00_optim_states.pt");
  EXPECT_THAT(error_of([&] { read_megatron(path("zero3"), {}); }),
              HasSubstr("zero_pp_rank_2_mp_rank_00_optim_states.pt: is missing"));
  fs::copy(golden("zero3/latest"), step + "2_mp_rank_00_optim_states.pt");
  EXPECT_THAT(error_of([&] { read_megatron(path("zero3"), {}); }),
              HasSubstr("not a file of torch.save"));
  // Rank 11 is not rank 1.
  fs::copy(golden("tp2pp2"), path("far"), fs::copy_options::recursive);
  fs::rename(path("far/iter_0000010/mp_rank_01_000"), path("far/iter_0000010/mp_rank_11_000"));
  EXPECT_THAT(error_of([&] { read_megatron(path("far"), {}); }), HasSubstr("mp_rank_"));
  fs::create_directories(path("dist"));
  std::ofstream(path("dist/__0_0.distcp")) << "x";
  EXPECT_THAT(error_of([&] { read_megatron(path("dist"), {}); }),
              HasSubstr("dist/.metadata: is missing: unfinished checkpoint"));
}

TEST_F(ConvertTest, AFolderThatIsNoModelIsRefused) {
  const CanonicalModel model = read_golden("v3.pt");
  write_hf_folder(model, *find_family("gpt2"), tokenizer(), {.folder = path("hf")});
  const json config = json::parse(read_file(path("hf/config.json")));
  const auto with = [&](const char* key, const json& value) {
    json changed = config;
    changed[key] = value;
    std::ofstream(path("hf/config.json")) << changed;
    return error_of([&] { read_hf_folder(path("hf")); });
  };
  EXPECT_THAT(with("model_type", "bert"), HasSubstr("model_type \"bert\" is not supported"));
  for (const int layers : {5, 3}) {  // its folder is named, once
    const std::string what = with("n_layer", layers);
    EXPECT_EQ(what.find(path("hf")), 0U) << what;
    EXPECT_EQ(what.rfind(path("hf")), 0U) << what;
  }
  EXPECT_THAT(with("n_layer", 5), HasSubstr("has no tensor transformer.h.4.ln_1.weight"));
  EXPECT_THAT(with("n_layer", 3), HasSubstr("transformer.h.3.attn.c_attn.bias is no tensor"));
  EXPECT_THAT(with("n_embd", 16), HasSubstr("c_attn.weight: rows 16 to 32 of 24"));
  EXPECT_THAT(with("n_embd", "8"), HasSubstr("expected a whole number"));
  EXPECT_THAT(with("activation_function", "silu"),
              HasSubstr("key \"activation_function\" is \"silu\", which is not supported: expected "
                        "gelu_new, gelu_fast, gelu_pytorch_tanh, gelu or relu"));
  EXPECT_THAT(with("activation_function", "relu2"),
              HasSubstr("key \"activation_function\" is \"relu2\""));
  EXPECT_THAT(with("vocab_size", 262), HasSubstr("shape (261, 8), expected (262, 8)"));
}

TEST_F(ConvertTest, NumbersThatAreNotFiniteAreSaid) {
  CanonicalModel model = read_golden("v3.pt");
  TensorSource& bias = model.tensors.at("decoder.final_layernorm.bias");
  bias = TensorSource{"F32",
                      {8},
                      [](int64_t, int64_t count, std::byte* out) {
                        const std::vector<float> v(static_cast<size_t>(count), 1e30F);
                        std::memcpy(out, v.data(), v.size() * 4);
                      },
                      "test"};
  const HfResult result = write_hf_folder(model, *find_family("gpt2"), tokenizer(),
                                          {.folder = path("hf"), .dtype = "F16"});
  ASSERT_EQ(result.notes.size(), 1U);
  EXPECT_THAT(result.notes[0], HasSubstr("transformer.ln_f.bias: 8 of 8 numbers are not finite"));
}

// Also where q, k and v, or gate and up, become one tensor, whose parts are rows apart.
TEST_F(ConvertTest, NumbersThatAreNotFiniteHaveTheirTensorsName) {
  const CanonicalModel whole = read_hf_folder(std::string(GOLDEN_DIR) + "/convert/families/llama");
  for (const std::string part : {"self_attention.linear_q", "self_attention.linear_k",
                                 "self_attention.linear_v", "mlp.linear_gate", "mlp.linear_up"}) {
    CanonicalModel model = whole;
    TensorSource& source = model.tensors.at(layer_name(1, part + ".weight"));
    const std::string name = source.place;
    source = TensorSource{source.dtype, source.shape,
                          [of = source](int64_t first, int64_t count, std::byte* out) {
                            of.read_rows(first, count, out);
                            if (first + count < of.rows()) return;
                            const float nan = std::numeric_limits<float>::quiet_NaN();
                            std::memcpy(out + count * of.row_bytes() - 4, &nan, 4);
                          },
                          name};
    const auto says = [&](const char* dtype) {
      return name + ": has numbers that are not finite in " + dtype;
    };
    EXPECT_EQ(error_of([&] { write_trainer_checkpoint(model, path("run"), 1); }), says("F32"));
    const MegatronTarget target{.path = path("m.pt"), .divisible_by = 1, .dtype = "BF16"};
    EXPECT_EQ(error_of([&] { write_megatron(model, {}, target); }), says("BF16"));
  }
}

}  // namespace
}  // namespace convert
