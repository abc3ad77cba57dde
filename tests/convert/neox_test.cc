// GPT-NeoX's own checkpoints: the goldens of tests/reference/neox_golden.py become the models that
// transformers has of the same weights, and what does not fit together is refused by name.
// SPDX-License-Identifier: MIT
#include "convert/neox_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "convert/families/family.h"
#include "convert/hf_folder.h"
#include "convert/plain_forward.h"
#include "convert/trainer_source.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/spec/model_fields.h"

namespace convert {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

const std::string kGolden = std::string(GOLDEN_DIR) + "/convert/neox/";

json read_json(const std::string& path) {
  std::ifstream in(path);
  return json::parse(in);
}

class NeoxTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / "neox_test.XXXXXX";
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  /// A copy of a golden, and its step's folder.
  std::string copy(const char* name) {
    fs::remove_all(path("copy"));
    fs::copy(kGolden + name, path("copy"), fs::copy_options::recursive);
    return path("copy/checkpoints/global_step7");
  }
  std::string error_of(const SourceOptions& options = {}) {
    try {
      read_megatron(path("copy/checkpoints"), options);
      return "accepted";
    } catch (const std::exception& e) {
      return e.what();
    }
  }
  /// One line more in the first of the configurations.
  std::string with(const std::string& line) {
    const std::string config = copy("parallel_tp2") + "/configs/local_setup.yml";
    std::ofstream(config) << "{\n  " << line << ",\n}\n";
    return error_of();
  }

  std::string folder_;
};

class NeoxCases : public NeoxTest, public testing::WithParamInterface<const char*> {};

TEST_P(NeoxCases, BecomeTheModelsOfTransformers) {
  const std::string golden = kGolden + GetParam();
  const json want = read_json(golden + "/expected.json");
  CanonicalModel model = read_megatron(golden + "/checkpoints", {});
  EXPECT_EQ(model.iteration, 7);
  EXPECT_EQ(model.tokenizer.type, "HFTokenizer");
  EXPECT_EQ(model.tokenizer.vocab_file, "not-there/tokenizer.json");
  EXPECT_TRUE(model.notes.empty());
  trim_vocabulary(model, 264);
  const std::vector<int32_t> tokens = want.at("tokens").get<std::vector<int32_t>>();
  for (const QkvRoad road : {QkvRoad::fused, QkvRoad::apart}) {
    const std::vector<float> logits = plain_forward(model, tokens, road);
    for (size_t row = 0; row < tokens.size(); ++row)
      for (size_t i = 0; i < 264; ++i)  // sums of 64 products of about 1, in another order
        ASSERT_NEAR(logits[row * 264 + i], want.at("logits")[row][i].get<float>(), 2e-5);
  }
  const Family& family = choose_family(model.spec);
  EXPECT_EQ(family.name, "gpt_neox");
  write_hf_folder(model, family, {}, {.folder = path("hf")});
  const auto file = trainer::SafetensorsFile::open(path("hf/model.safetensors"));
  EXPECT_EQ(file.tensors().size(), want.at("tensors").size());
  for (const trainer::TensorEntry& tensor : file.tensors()) {
    const json& row = want.at("tensors").at(tensor.name);
    const std::span<const std::byte> bytes = file.bytes(tensor);
    EXPECT_EQ(tensor.shape, row[0].get<std::vector<int64_t>>()) << tensor.name;
    EXPECT_EQ(
        ::crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())),
        row[1].get<uint32_t>())
        << tensor.name;
  }
  // As a start for training, and from there once more.
  write_trainer_checkpoint(model, path("run"), 64);
  CanonicalModel back = read_trainer_checkpoint(path("run"), std::nullopt, false);
  trim_vocabulary(back, 264);
  EXPECT_EQ(trainer::model_record(back.spec), trainer::model_record(model.spec));
  for (const auto& [name, source] : model.tensors)
    EXPECT_EQ(back.at(name).load(), source.load()) << name;
}

INSTANTIATE_TEST_SUITE_P(Neox, NeoxCases,
                         testing::Values("parallel_tp2", "serial_tp2", "sequential"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(NeoxTest, ConfigurationsAreNeededAndMayBeGiven) {
  const std::string step = copy("parallel_tp2");
  fs::rename(step + "/configs", path("configs"));
  EXPECT_THAT(error_of(), HasSubstr("give --neox-config FILE"));
  EXPECT_EQ(error_of({.neox_configs = {path("configs/model.yml")}}), "accepted");
  EXPECT_THAT(error_of({.neox_configs = {path("configs/local_setup.yml")}}),
              HasSubstr("position"));  // says nothing of the model, so positions are learned
}

TEST_F(NeoxTest, WhatDoesNotFitTogetherIsRefused) {
  std::string step = copy("parallel_tp2");
  fs::remove(step + "/layer_03-model_00-model_states.pt");
  EXPECT_THAT(error_of(), HasSubstr("layer_03-model_01-model_states.pt: "));
  EXPECT_THAT(error_of(), HasSubstr("rank 0's part is missing"));
  step = copy("parallel_tp2");
  fs::remove(step + "/layer_03-model_01-model_states.pt");
  EXPECT_THAT(error_of(), HasSubstr("on 1 of 2 tensor-parallel ranks"));
  step = copy("parallel_tp2");
  for (const char* rank : {"00", "01"})
    fs::remove(step + "/layer_03-model_" + rank + "-model_states.pt");
  EXPECT_THAT(error_of(), HasSubstr("the model has no tensor decoder.layers.1."));
  step = copy("parallel_tp2");
  std::ofstream(step + "/configs/model.yml") << "num_layers: 3\n";
  EXPECT_THAT(error_of(), HasSubstr("its num_layers is 2, but the configuration's is 3"));
  std::ofstream(step + "/configs/model.yml")
      << "{num-attention-heads: 4, pos-emb: rotary, rotary-pct: 0.25, no-weight-tying: true}\n";
  EXPECT_THAT(error_of(),
              HasSubstr("rotary_percent 0.25 of kv_channels 4 is 1: expected an even number"));
}

TEST_F(NeoxTest, OtherModelsAreRefusedByTheirKey) {
  EXPECT_EQ(with("\"vocab-file\": \"a.json\""), "accepted");
  EXPECT_THAT(with("\"gpt_j_tied\": true"), HasSubstr("local_setup.yml: gpt_j_tied"));
  EXPECT_THAT(with("\"num_kv_heads\": 2"), HasSubstr("num_kv_heads 2: grouped-query attention"));
  EXPECT_THAT(with("\"activation\": \"swiglu\""), HasSubstr("activation \"swiglu\""));
  EXPECT_THAT(with("\"attention_config\": [[[\"mamba\"], 2]]"), HasSubstr("attention_config"));
  EXPECT_THAT(with("\"use_qk_layernorm\": true"), HasSubstr("use_qk_layernorm"));
  EXPECT_THAT(with("\"moe_num_experts\": 8"), HasSubstr("moe_num_experts"));
  EXPECT_THAT(with("\"num_layers\": 2"), HasSubstr("num_layers stands in"));
}

TEST_F(NeoxTest, CopiesThatDifferAreNoted) {
  const std::string step = copy("parallel_tp2");
  fs::copy_file(step + "/layer_02-model_01-model_states.pt",
                step + "/layer_03-model_01-model_states.pt", fs::copy_options::overwrite_existing);
  const CanonicalModel model = read_megatron(path("copy/checkpoints"), {});
  ASSERT_EQ(model.notes.size(), 1U);
  EXPECT_THAT(model.notes[0], HasSubstr("is not the same as on tensor-parallel rank 0"));
}

}  // namespace
}  // namespace convert
