// GPT-NeoX's own checkpoints: the goldens of tests/reference/neox_golden.py become the models that
// transformers has of the same weights, those of neox_llama_golden.py what GPT-NeoX computes, and
// what does not fit together is refused by name.
// SPDX-License-Identifier: MIT
#include "convert/neox_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "convert/families/family.h"
#include "convert/hf_folder.h"
#include "convert/plain_forward.h"
#include "convert/torch_weights.h"
#include "convert/torch_writer.h"
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

/// Llama-like: with a gate, and with or without grouped heads and biases.
struct LlamaCase {
  const char* name;
  const char* family;
  int64_t groups, width;
  bool attention_bias, mlp_bias;
};

class NeoxLlamas : public NeoxTest, public testing::WithParamInterface<LlamaCase> {};

TEST_P(NeoxLlamas, ComputeWhatGptNeoxComputes) {
  const LlamaCase& c = GetParam();
  const std::string golden = kGolden + c.name;
  const json want = read_json(golden + "/expected.json");
  CanonicalModel model = read_megatron(golden + "/checkpoints", {});
  EXPECT_EQ(model.spec.num_query_groups, c.groups);
  EXPECT_EQ(model.spec.ffn_hidden_size, c.width);
  EXPECT_EQ(model.spec.has_mlp_bias(), c.mlp_bias);
  EXPECT_EQ(model.spec.has_proj_bias(), c.attention_bias);
  // Only where linear1 leaves open which release it is of.
  const bool open = std::string_view(c.name) == "swiglu_grouped";
  ASSERT_EQ(model.notes.size(), open ? 1U : 0U);
  for (const std::string& note : model.notes)
    EXPECT_THAT(note, HasSubstr("as GPT-NeoX reads it since November 2024"));
  trim_vocabulary(model, 64);
  const Family& family = choose_family(model.spec);
  EXPECT_EQ(family.name, c.family);
  write_hf_folder(model, family, {}, {.folder = path("hf")});
  const CanonicalModel written = read_hf_folder(path("hf"));
  const std::vector<int32_t> tokens = want.at("tokens").get<std::vector<int32_t>>();
  for (const CanonicalModel* one : {static_cast<const CanonicalModel*>(&model), &written}) {
    const std::vector<float> logits = plain_forward(*one, tokens, QkvRoad::apart);
    for (size_t row = 0; row < tokens.size(); ++row)
      for (size_t i = 0; i < 64; ++i)
        ASSERT_NEAR(logits[row * 64 + i], want.at("logits")[row][i].get<float>(), 2e-5);
  }
  write_trainer_checkpoint(model, path("run"), 64);
  const CanonicalModel back = read_trainer_checkpoint(path("run"), std::nullopt, false);
  EXPECT_EQ(trainer::model_record(back.spec), trainer::model_record(model.spec));
  for (const auto& [name, source] : model.tensors)
    EXPECT_EQ(back.at(name).load(), source.load()) << name;
}

INSTANTIATE_TEST_SUITE_P(Neox, NeoxLlamas,
                         testing::Values(LlamaCase{"mistral_w1w3", "mistral", 4, 24, false, false},
                                         LlamaCase{"swiglu_grouped", "llama", 4, 16, true, false},
                                         LlamaCase{"swiglu_biases", "llama", 8, 44, false, true}),
                         [](const auto& info) { return std::string(info.param.name); });

// Of the configuration's lines, one is replaced.
TEST_F(NeoxTest, AGateThatTheConfigurationLacksOrAddsIsRefused) {
  const auto error = [&](const char* golden, const std::string& line, const std::string& other) {
    const std::string config = copy(golden) + "/configs/model.yml";
    std::ostringstream read;
    read << std::ifstream(config).rdbuf();
    std::string text = read.str();
    EXPECT_NE(text.find(line), std::string::npos) << line;
    text.replace(text.find(line), line.size(), other);
    std::ofstream(config) << text;
    return error_of();
  };
  EXPECT_THAT(error("mistral_w1w3", "\"mlp_type\": \"llama\"", "\"mlp_type\": null"),
              HasSubstr("activation \"silu\": without mlp_type llama GPT-NeoX's MLP has no gate"));
  EXPECT_THAT(error("mistral_w1w3", "\"activation\": \"silu\",\n  \"intermediate_size\": 24",
                    "\"activation\": \"silu\""),
              HasSubstr("model_states.pt: mlp.w1.weight: shape (24, 32), expected (256, 32)"));
  EXPECT_THAT(error("mistral_w1w3", "\"mlp_type\": \"llama\",\n  \"activation\": \"silu\"",
                    "\"activation\": \"gelu\", \"use_bias_in_mlp\": false"),
              HasSubstr("mlp.w1.weight: has a gate, which the configuration does not ask for"));
  EXPECT_THAT(error("swiglu_biases", "\"mlp_multiple_of\": 4", "\"use_bias_in_mlp\": false"),
              HasSubstr("GPT-NeoX makes 43 in its first linear and takes 42 in the last"));
  EXPECT_THAT(error("swiglu_biases", "\"mlp_multiple_of\": 4",
                    "\"mlp_multiple_of\": 4, \"use_bias_in_mlp\": false"),
              HasSubstr("mlp.linear2.bias: decoder.layers.0.mlp.linear_fc2.bias is no part"));
  EXPECT_THAT(error("swiglu_grouped", "\"num_kv_heads\": 4", "\"num_kv_heads\": 1"),
              HasSubstr("2 ranks do not divide 1 groups"));
  EXPECT_THAT(with("\"activation\": \"swiglu\""),
              HasSubstr("mlp.dense_h_to_4h.bias: has no gate in GPT-NeoX"));
}

TEST_F(NeoxTest, MlpsOfTwoReleasesAndHalfOfOneAreRefused) {
  const auto renamed = [&](const std::string& from, const std::string& to) {
    const std::string step = copy("mistral_w1w3");
    for (const char* rank : {"0", "1"}) {
      const std::string of_rank = step + "/layer_03-model_0" + rank + "-model_states.pt";
      const auto file = std::make_shared<TorchFile>(of_rank);
      PickleBuilder out;
      out.begin_dict();
      for (const auto& [name, source] : torch_weights(file, file->root()))
        if (name != from || !to.empty()) out.text(name == from ? to : name).tensor(source);
      out.end_dict();
      write_torch_file(of_rank + ".new", std::move(out), indexed::Existing::replace);
      fs::rename(of_rank + ".new", of_rank);
    }
    return error_of();
  };
  EXPECT_EQ(renamed("none", ""), "accepted");
  EXPECT_THAT(renamed("mlp.w3.weight", ""), HasSubstr("mlp.w1.weight: without mlp.w3.weight"));
  EXPECT_THAT(renamed("mlp.w1.weight", ""),
              HasSubstr("the model has no tensor decoder.layers.1.mlp.linear_gate.weight"));
  EXPECT_THAT(renamed("mlp.w1.weight", "mlp.linear1.weight"),
              HasSubstr("layer_03-model_00-model_states.pt: mlp.linear1.weight: the MLPs before it "
                        "have other names"));
}

TEST_F(NeoxTest, ConfigurationsAreNeededAndMayBeGiven) {
  const std::string step = copy("parallel_tp2");
  fs::rename(step + "/configs", path("configs"));
  EXPECT_THAT(error_of(), HasSubstr("give --neox-config FILE"));
  EXPECT_EQ(error_of({.neox_configs = {path("configs/model.yml")}}), "accepted");
  EXPECT_THAT(error_of({.neox_configs = {path("configs/local_setup.yml")}}),
              HasSubstr("give all files of the run"));  // says nothing of the output layer
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
  EXPECT_THAT(with("\"activation\": \"geglu\""), HasSubstr("activation \"geglu\""));
  EXPECT_THAT(with("\"mlp_type\": \"moe\""), HasSubstr("mlp_type \"moe\""));
  EXPECT_THAT(with("\"attention_config\": [[[\"mamba\"], 2]]"), HasSubstr("attention_config"));
  EXPECT_THAT(with("\"use_qk_layernorm\": true"), HasSubstr("use_qk_layernorm"));
  EXPECT_THAT(with("\"moe_num_experts\": 8"), HasSubstr("moe_num_experts"));
  EXPECT_THAT(with("\"num_layers\": 2"), HasSubstr("num_layers stands in"));
}

TEST_F(NeoxTest, AnOutputLayerOfItsOwnIsNotDropped) {
  const std::string config = copy("parallel_tp2") + "/configs/model.yml";
  std::ostringstream read;
  read << std::ifstream(config).rdbuf();
  std::string text = read.str();
  const std::string key = "\"no-weight-tying\": true";
  ASSERT_NE(text.find(key), std::string::npos);
  text.replace(text.find(key), key.size(), "\"no-weight-tying\": false");
  std::ofstream(config) << text;
  EXPECT_THAT(error_of(), HasSubstr("layer_06-model_00-model_states.pt: final_linear.weight: is "
                                    "not the embedding, but no-weight-tying is not true in the "
                                    "configuration"));
}

TEST_F(NeoxTest, BiasesAreAddedInFp32) {
  const std::string step = copy("parallel_tp2");
  std::vector<float> want(16, 0);
  for (const char* rank : {"0", "1"}) {
    const std::string of_rank = step + "/layer_02-model_0" + rank + "-model_states.pt";
    const auto file = std::make_shared<TorchFile>(of_rank);
    PickleBuilder out;
    out.begin_dict();
    for (const auto& [name, source] : torch_weights(file, file->root())) {
      const TensorSource half = convert_dtype(source, "BF16");
      out.text(name).tensor(half);
      if (name != "attention.dense.bias") continue;
      const std::vector<std::byte> wide = convert_dtype(half, "F32").load();
      for (size_t i = 0; i < want.size(); ++i) {
        float x = 0;
        std::memcpy(&x, &wide[4 * i], 4);
        want[i] += x;
      }
    }
    out.end_dict();
    write_torch_file(of_rank, std::move(out), indexed::Existing::replace);
  }
  const CanonicalModel model = read_megatron(path("copy/checkpoints"), {});
  const TensorSource& bias = model.at("decoder.layers.0.self_attention.linear_proj.bias");
  EXPECT_EQ(bias.dtype, "BF16");
  const std::vector<std::byte> got = convert_dtype(bias, "F32").load();
  EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size()), 0);
}

// output_layer_parallelism: row, the default of older releases.
TEST_F(NeoxTest, AnOutputLayerInColumnsIsJoined) {
  const std::string step = copy("parallel_tp2");
  const auto file_of = [&](int rank) {
    return step + "/layer_06-model_0" + std::to_string(rank) + "-model_states.pt";
  };
  const std::vector<std::byte> want =
      read_megatron(path("copy/checkpoints"), {}).at("output_layer.weight").load();
  std::vector<TensorSource> rows;
  std::vector<std::vector<std::byte>> kept;  // the files are written over
  kept.reserve(2);
  for (const int rank : {0, 1}) {
    const auto file = std::make_shared<TorchFile>(file_of(rank));
    const TensorSource part = torch_weights(file, file->root()).at("final_linear.weight");
    kept.push_back(part.load());
    rows.push_back(mapped_source(part.dtype, part.shape, "kept", {.data = kept.back().data()}));
  }
  const TensorSource turned = transpose(join_rows(rows));
  for (const int rank : {0, 1}) {
    PickleBuilder out;
    out.begin_dict().text("final_linear.weight");
    out.tensor(transpose(slice_rows(turned, rank * turned.rows() / 2, turned.rows() / 2)));
    out.end_dict();
    write_torch_file(file_of(rank), std::move(out), indexed::Existing::replace);
  }
  const CanonicalModel got = read_megatron(path("copy/checkpoints"), {});
  EXPECT_EQ(got.at("output_layer.weight").load(), want);
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
