// config.json of each family: what means another model is refused by its key, and what comes back
// says what the source said.
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "convert/families/family.h"
#include "convert/hf_folder.h"
#include "tests/convert/outcomes.h"

namespace convert {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::string families() { return std::string(GOLDEN_DIR) + "/convert/families"; }

class Configurations : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / "configurations_test.XXXXXX";
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
};

// transformers rounds one formula differently under each of its names.
TEST_F(Configurations, TheSourcesNameOfAnActivationStays) {
  const auto activation = [&](const char* before, const char* kept) {
    CanonicalModel model = read_hf_folder(families() + "/gpt2");
    model.spec.activation = ops::Activation::gelu_tanh;
    TokenizerFiles source;
    source.model_files = {{"config.json", std::string("{\"") + kept + "\": \"" + before + "\"}"}};
    write_hf_folder(model, *find_family("gpt2"), source, {.folder = path("hf"), .replace = true});
    return json::parse(read_file(path("hf/config.json"))).at("activation_function");
  };
  EXPECT_EQ(activation("gelu_fast", "activation_function"), "gelu_fast");
  EXPECT_EQ(activation("gelu_pytorch_tanh", "activation_function"), "gelu_pytorch_tanh");
  EXPECT_EQ(activation("gelu", "activation_function"), "gelu_new");  // another formula
  EXPECT_EQ(activation("nobody's", "activation_function"), "gelu_new");
  EXPECT_EQ(activation("gelu_fast", "hidden_act"), "gelu_new");  // another family's key
}

// from_pretrained converts all tensors to config.json's dtype, whichever tensor has which.
TEST_F(Configurations, TheSourcesDtypeStaysWhereDtypesAreMixed) {
  CanonicalModel model = read_hf_folder(families() + "/gpt2");
  const auto written = [&](const TokenizerFiles& source) {
    write_hf_folder(model, *find_family("gpt2"), source, {.folder = path("hf"), .replace = true});
    const json config = json::parse(read_file(path("hf/config.json")));
    EXPECT_EQ(config.at("dtype"), config.at("torch_dtype"));
    return config.at("dtype").get<std::string>();
  };
  const auto from = [](const char* config) {
    TokenizerFiles source;
    source.model_files = {{"config.json", config}};
    return source;
  };
  for (auto& [name, source] : model.tensors) source = convert_dtype(source, "BF16");
  TensorSource& embedding = model.tensors.at("embedding.word_embeddings.weight");
  embedding = convert_dtype(embedding, "F32");
  model.dtype = dtype_of_most(model);
  EXPECT_EQ(model.dtype, "BF16");
  EXPECT_EQ(written({}), "bfloat16");
  EXPECT_EQ(written(from(R"({"torch_dtype": "float32"})")), "float32");
  EXPECT_EQ(written(from(R"({"dtype": "bfloat16", "torch_dtype": "float32"})")), "bfloat16");
  EXPECT_EQ(written(from(R"({"torch_dtype": "float16"})")), "bfloat16");  // no tensor has it
  EXPECT_EQ(written(from(R"({"torch_dtype": null})")), "bfloat16");
  // A folder says it itself.
  json config = json::parse(read_file(path("hf/config.json")));
  EXPECT_EQ(read_hf_folder(path("hf")).dtype, "BF16");
  config["dtype"] = "float32";
  std::ofstream(path("hf/config.json")) << config;
  EXPECT_EQ(read_hf_folder(path("hf")).dtype, "F32");
}

// An index that an earlier save left beside the one file names another model's shards.
TEST_F(Configurations, OneFileGoesBeforeAnIndexAsInTransformers) {
  for (const auto& [family, file] :
       {std::pair("gpt2", "model.safetensors"), std::pair("gpt2_bin", "pytorch_model.bin")}) {
    const std::string folder = path(family);
    fs::copy(families() + "/" + family, folder);
    const std::string index = folder + "/" + file + ".index.json";
    std::ofstream(index) << R"({"weight_map": {"transformer.wte.weight": "gone"}})";
    EXPECT_EQ(error_of([&] { read_hf_folder(folder); }), "accepted");
    fs::remove(folder + "/" + file);
    EXPECT_THAT(error_of([&] { read_hf_folder(folder); }), HasSubstr("gone"));
  }
}

// gpt_neox has rotary_emb_base, and transformers does not read rope_theta there.
TEST_F(Configurations, TheBaseOfGptNeoxIsItsOwnKey) {
  fs::copy(families() + "/gpt_neox", path("hf"));
  json config = json::parse(read_file(path("hf/config.json")));
  config.erase("rope_parameters");
  config.update({{"rotary_emb_base", 700}, {"rope_theta", 500}});
  std::ofstream(path("hf/config.json")) << config;
  EXPECT_EQ(read_hf_folder(path("hf")).spec.rotary_base, 700);
}

// transformers 5 lets rope_scaling replace rope_parameters, and 4 does not know the latter.
TEST_F(Configurations, KeysForPositionsThatContradictEachOtherAreRefused) {
  fs::copy(families() + "/llama", path("hf"));
  const json before = json::parse(read_file(path("hf/config.json")));
  const auto with = [&](const json& changes) {
    json config = before;
    for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters"}) config.erase(key);
    config.update(changes);
    std::ofstream(path("hf/config.json")) << config;
    return error_of([&] { read_hf_folder(path("hf")); });
  };
  const json linear = {{"type", "linear"}, {"factor", 2.0}};
  const json scaled = {{"rope_type", "linear"}, {"factor", 2}, {"rope_theta", 500}};
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8},
                       {"low_freq_factor", 1},
                       {"high_freq_factor", 4},
                       {"original_max_position_embeddings", 16}};
  EXPECT_THAT(with({{"rope_scaling", linear}, {"rope_parameters", scaled}}),
              HasSubstr("key \"rope_scaling\" is {\"factor\":2.0,\"type\":\"linear\"}, which does "
                        "not mean what key \"rope_parameters\" says: {"));
  EXPECT_THAT(with({{"rope_scaling", linear}, {"rope_parameters", {{"rope_theta", 10000}}}}),
              HasSubstr("key \"rope_scaling\""));
  EXPECT_THAT(with({{"rope_scaling", llama3}, {"rope_parameters", scaled}}),
              HasSubstr("key \"rope_scaling\""));
  // The same twice, by way of a key of the config.
  EXPECT_EQ(with({{"rope_theta", 500}, {"rope_scaling", linear}, {"rope_parameters", scaled}}),
            "accepted");
  EXPECT_EQ(read_hf_folder(path("hf")).spec.rotary_base, 500);
  EXPECT_EQ(read_hf_folder(path("hf")).spec.rotary_interpolation, 2);
  for (const json& nothing : {json(), json::object()})
    EXPECT_EQ(with({{"rope_scaling", nothing}, {"rope_parameters", scaled}}), "accepted");
  EXPECT_EQ(with({{"rope_scaling", llama3}, {"original_max_position_embeddings", 16}}), "accepted");
  for (const char* key : {"rope_scaling", "rope_parameters"})
    EXPECT_THAT(with({{key, llama3}, {"original_max_position_embeddings", 32}}),
                HasSubstr("key \"original_max_position_embeddings\" is 32, but 16 where"));
  EXPECT_EQ(with({{"rope_scaling", linear}, {"original_max_position_embeddings", 32}}), "accepted");
  // transformers 5, where kinds of layers have other positions.
  EXPECT_THAT(with({{"rope_parameters", {{"full_attention", scaled}}}}),
              HasSubstr("key \"rope_parameters\": \"full_attention\" has positions of its own"));
}

// Of GPT-2's two dropouts a model has one; nothing but training reads it.
TEST_F(Configurations, ASecondDropoutIsNoted) {
  fs::copy(families() + "/gpt2", path("hf"));
  const json before = json::parse(read_file(path("hf/config.json")));
  const auto note = [&](const json& embedding, const json& branches) {
    json config = before;
    for (const auto& [key, value] :
         {std::pair("embd_pdrop", embedding), std::pair("resid_pdrop", branches)}) {
      config[key] = value;
      if (value.is_null()) config.erase(key);
    }
    std::ofstream(path("hf/config.json")) << config;
    return read_hf_folder(path("hf")).training_note;
  };
  const std::string kept =
      ", but a model has one hidden_dropout: training on, and an export, will have ";
  EXPECT_EQ(note(0.2, 0.2), "");
  EXPECT_EQ(note(nullptr, nullptr), "");
  EXPECT_EQ(note(nullptr, 0.1), "");
  EXPECT_EQ(note(0.0, 0.3),
            path("hf/config.json") + ": key \"embd_pdrop\" is 0.0" + kept + "0.3 here, too");
  EXPECT_THAT(note(nullptr, 0.3), HasSubstr("key \"embd_pdrop\" is 0.1"));  // the default
  EXPECT_THAT(note(0, nullptr), HasSubstr("will have 0.1 here"));
  EXPECT_THAT(error_of([&] { note(2, 0.1); }), HasSubstr("expected a number from 0 to 1"));
}

// What a family's models have and these do not is refused by its key, never computed otherwise.
TEST_F(Configurations, ThatMeanAnotherModelAreRefused) {
  const auto with = [&](const std::string& family, const char* key, const json& value) {
    const fs::path from = fs::path(families()) / family;
    fs::remove_all(path("hf"));
    fs::copy(from, path("hf"));
    json config = json::parse(read_file(from.string() + "/config.json"));
    config[key] = value;
    if (value == "absent") config.erase(key);
    std::ofstream(path("hf/config.json")) << config;
    return error_of([&] { read_hf_folder(path("hf")); });
  };
  for (const char* family : {"gpt2", "opt", "gpt_neox", "llama", "mistral", "qwen2", "qwen3"}) {
    EXPECT_THAT(with(family, "is_causal", false), HasSubstr("key \"is_causal\" is false"));
    EXPECT_EQ(with(family, "is_causal", true), "accepted");
    EXPECT_THAT(with(family, "transformers_weights", "other.safetensors"),
                HasSubstr("key \"transformers_weights\" is \"other.safetensors\""));
    EXPECT_EQ(with(family, "transformers_weights", nullptr), "accepted");
  }
  // As the families' classes have it.
  EXPECT_EQ(with("mistral", "sliding_window", "absent"), "accepted");
  EXPECT_EQ(read_hf_folder(path("hf")).spec.sliding_window, 4096);
  EXPECT_EQ(with("mistral", "sliding_window", nullptr), "accepted");
  EXPECT_EQ(read_hf_folder(path("hf")).spec.sliding_window, 0);
  // AutoModel makes a Ministral of a mistral with this key.
  const json layers(read_hf_folder(families() + "/mistral").spec.num_layers, "full_attention");
  EXPECT_GT(read_hf_folder(families() + "/mistral").spec.sliding_window, 0);
  EXPECT_EQ(with("mistral", "layer_types", layers), "accepted");
  EXPECT_EQ(read_hf_folder(path("hf")).spec.sliding_window, 0);
  for (const json& nothing : {json(), json::array()}) {
    EXPECT_EQ(with("mistral", "layer_types", nothing), "accepted");
    EXPECT_GT(read_hf_folder(path("hf")).spec.sliding_window, 0);
  }
  EXPECT_THAT(with("mistral", "num_key_value_heads", "absent"), HasSubstr("does not divide"));
  EXPECT_THAT(with("qwen3", "head_dim", "absent"), HasSubstr("expected (512, 16)"));
  EXPECT_THAT(with("llama", "num_key_value_heads", "absent"), HasSubstr("expected (16, 16)"));
  for (const char* family : {"gpt_neox", "gpt_neox_serial"}) {  // parallel, if it is not stated
    EXPECT_EQ(with(family, "use_parallel_residual", "absent"), "accepted");
    EXPECT_TRUE(read_hf_folder(path("hf")).spec.parallel_residual);
  }
  EXPECT_EQ(with("gpt_neox", "rope_parameters", "absent"), "accepted");
  EXPECT_EQ(read_hf_folder(path("hf")).spec.rotary_percent, 0.25f);
  EXPECT_EQ(read_hf_folder(path("hf")).spec.rotary_base, 10000);
  EXPECT_EQ(with("qwen2", "use_sliding_window", false), "accepted");
  EXPECT_THAT(with("qwen2", "use_sliding_window", true),
              HasSubstr("key \"use_sliding_window\" is true, which is not supported"));
  EXPECT_THAT(with("qwen3", "layer_types", {"full_attention", "sliding_attention"}),
              HasSubstr("key \"layer_types\" is [\"full_attention\",\"sliding_attention\"]"));
  EXPECT_THAT(with("qwen3", "hidden_act", "gelu"),
              HasSubstr("key \"hidden_act\" is \"gelu\", which is not supported: expected silu"));
  EXPECT_THAT(with("llama", "rope_scaling", {{"rope_type", "yarn"}, {"factor", 2}}),
              HasSubstr("rope_type \"yarn\" is not supported, expected default, linear or llama3"));
  EXPECT_THAT(with("llama", "rope_scaling", {{"rope_type", "linear"}, {"factor", 0}}),
              HasSubstr("has no factor above 0"));
  EXPECT_THAT(with("mistral", "layer_types", {"full_attention", "sliding_attention"}),
              HasSubstr("key \"layer_types\""));
  EXPECT_THAT(
      with("llama", "rope_parameters", {{"rope_theta", 500}, {"partial_rotary_factor", 0.5}}),
      HasSubstr("not a llama model known here: rotary_percent is 0.5, expected 1"));
  EXPECT_THAT(with("gpt_neox", "rope_parameters", {{"partial_rotary_factor", 0.2}}),
              HasSubstr("rotary_percent 0.2 of kv_channels 8 is 1: expected an even number"));
  EXPECT_THAT(with("mistral", "sliding_window", 2.5), HasSubstr("expected a whole number"));
  // Numbers that no flag of training takes.
  EXPECT_THAT(with("llama", "rms_norm_eps", -1e-6),
              HasSubstr("key \"rms_norm_eps\" is -1e-06, expected a number from 0 to 1"));
  EXPECT_THAT(with("gpt_neox", "layer_norm_eps", -1), HasSubstr("key \"layer_norm_eps\" is -1,"));
  EXPECT_THAT(with("gpt2", "layer_norm_epsilon", 2),
              HasSubstr("key \"layer_norm_epsilon\" is 2, expected a number from 0 to 1"));
  EXPECT_THAT(with("llama", "rope_theta", 0),
              HasSubstr("key \"rope_theta\" is 0, expected a number from 1 up"));
  EXPECT_THAT(with("llama", "rope_parameters", {{"rope_theta", 0}}),
              HasSubstr("key \"rope_theta\" is 0, expected a number from 1 up"));
  EXPECT_THAT(with("llama", "rope_theta", 1e300), HasSubstr("key \"rope_theta\" is 1e+300"));
  EXPECT_THAT(with("llama", "attention_dropout", -0.5),
              HasSubstr("key \"attention_dropout\" is -0.5, expected a number from 0 to 1"));
  EXPECT_THAT(with("llama", "initializer_range", -1), HasSubstr("key \"initializer_range\" is -1"));
  EXPECT_EQ(with("llama", "rms_norm_eps", 0), "accepted");
  EXPECT_THAT(with("qwen2", "head_dim", int64_t{1} << 62),
              HasSubstr("head size of 4611686018427387904"));
  EXPECT_THAT(with("mistral", "num_key_value_heads", 3), HasSubstr("does not divide"));
  EXPECT_THAT(with("llama", "attention_bias", true),
              HasSubstr("no tensor model.layers.0.self_attn.q_proj.bias"));
  EXPECT_THAT(with("qwen3", "model_type", "llama"),
              HasSubstr("k_norm.weight is no tensor of a llama"));
  EXPECT_THAT(with("opt", "word_embed_proj_dim", 8),
              HasSubstr("no tensor model.decoder.project_in"));
  EXPECT_THAT(with("opt", "do_layer_norm_before", false),
              HasSubstr("final_layer_norm.bias is no tensor of a opt"));
  EXPECT_THAT(with("opt_350m", "do_layer_norm_before", true),
              HasSubstr("no tensor model.decoder.final_layer_norm"));
  EXPECT_THAT(with("opt_350m", "word_embed_proj_dim", 16),
              HasSubstr("project_in.weight is no tensor of a opt"));
}

}  // namespace
}  // namespace convert
