// SPDX-License-Identifier: MIT
// Checkpoints that Megatron-core itself wrote in its torch_dist format, on several tensor and
// pipeline ranks: read here, they compute the logits that Megatron-core computes after loading
// them. Then the ways in which such a folder can be damaged. Golden:
// tests/golden/convert/torch_dist, made by tests/reference/torch_dist_golden.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "convert/megatron_source.h"
#include "convert/plain_forward.h"
#include "convert/torch_dist.h"
#include "libindexed/format.h"
#include "tests/convert/foreign_bytes.h"
#include "tests/convert/outcomes.h"
#include "tests/own.h"

namespace convert {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::string golden(const std::string& name) {
  return std::string(GOLDEN_DIR) + "/convert/torch_dist/" + name;
}

class TorchDistTest : public ::testing::Test {
 protected:
  TorchDistTest() { fs::copy(golden("gpt2_tp2_pp2"), folder_); }

  /// Puts `to`, which is as long as `from`, wherever `file` has `from`.
  void replace(const std::string& file, const std::string& from, const std::string& to) const {
    std::string bytes = read_file(folder_ + "/" + file);
    ASSERT_NE(bytes.find(from), std::string::npos);
    for (size_t at = 0; (at = bytes.find(from, at)) != std::string::npos; at += to.size())
      bytes.replace(at, from.size(), to);
    std::ofstream(folder_ + "/" + file, std::ios::binary) << bytes;
  }

  tests::OwnFolder own_;
  const std::string& folder_ = own_.path();
};

class TorchDistModel : public ::testing::TestWithParam<const char*> {};

TEST_P(TorchDistModel, ComputesWhatMegatronComputes) {
  const json want = json::parse(read_file(golden(GetParam()) + "/expected.json"));
  CanonicalModel model = read_megatron(golden(GetParam()), {});
  EXPECT_EQ(model.iteration, 7);
  const std::vector<int32_t> tokens = want.at("tokens");
  trim_vocabulary(model, static_cast<int64_t>(want.at("logits")[0].size()));
  const std::vector<float> logits = plain_forward(model, tokens, QkvRoad::apart);
  const size_t width = logits.size() / tokens.size();
  for (size_t row = 0; row < tokens.size(); ++row)
    for (size_t i = 0; i < width; ++i)
      ASSERT_NEAR(logits[row * width + i], want.at("logits")[row][i].get<float>(), 2e-5);
}

INSTANTIATE_TEST_SUITE_P(MegatronCore, TorchDistModel,
                         ::testing::Values("gpt2_tp2_pp2", "gpt2_layers_apart", "llama_tp2"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(TorchDistTest, RowsComeInPiecesOfAnySize) {
  const TorchDist checkpoint(golden("llama_tp2"), TorchFile::Checksums::require);
  for (const auto& [name, source] : checkpoint.tensors()) {
    const std::vector<std::byte> whole = source.load();
    std::vector<std::byte> pieces(whole.size());
    for (int64_t first = 0, count = 1; first < source.rows(); first += count++) {
      count = std::min(count, source.rows() - first);
      source.read_rows(first, count, pieces.data() + first * source.row_bytes());
    }
    EXPECT_EQ(pieces, whole) << name;
  }
}

TEST_F(TorchDistTest, EveryCutOfItsFilesIsRefused) {
  for (const char* name : {".metadata", "__0_0.distcp", "__3_0.distcp"}) {
    const std::string path = folder_ + "/" + name;
    const uintmax_t size = fs::file_size(path);
    const std::string bytes = read_file(path);
    for (uintmax_t cut = 0; cut < size; cut += std::max<uintmax_t>(1, size / 23)) {
      fs::resize_file(path, cut);
      EXPECT_THAT(outcome(folder_), HasSubstr(folder_)) << name << " of " << cut << " bytes";
    }
    std::ofstream(path, std::ios::binary) << bytes;
  }
  EXPECT_EQ(outcome(folder_), "accepted");
}

TEST_F(TorchDistTest, DamagedBytesOfATensorAreSeen) {
  const std::string path = folder_ + "/__1_0.distcp";
  const std::string bytes = read_file(path);
  int refused = 0;
  for (size_t at = 0; at < bytes.size(); at += 307) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    std::ofstream(path, std::ios::binary) << damaged;
    refused += outcome(folder_) != "accepted";
  }
  // Dates of the zip members, padding, and extra state that no reader uses may change.
  EXPECT_GT(refused, static_cast<int>(bytes.size() / 307 / 3));
}

TEST_F(TorchDistTest, WhatIsMissingOrForeignIsNamed) {
  fs::rename(folder_ + "/__2_0.distcp", folder_ + "/elsewhere");
  EXPECT_THAT(outcome(folder_), HasSubstr("__2_0.distcp"));
  fs::rename(folder_ + "/elsewhere", folder_ + "/__2_0.distcp");
  std::ofstream(folder_ + "/metadata.json") << R"({"sharded_backend":"zarr"})";
  EXPECT_THAT(outcome(folder_),
              HasSubstr("metadata.json: sharded_backend \"zarr\" is not supported"));
  std::ofstream(folder_ + "/metadata.json") << "{";
  EXPECT_THAT(outcome(folder_), HasSubstr("metadata.json: not JSON"));
  for (const char* other : {"[]", "{}", R"({"sharded_backend":3})"}) {
    std::ofstream(folder_ + "/metadata.json") << other;
    EXPECT_THAT(outcome(folder_), HasSubstr("metadata.json: no sharded_backend")) << other;
  }
}

TEST_F(TorchDistTest, ALostCommonStateIsCalledSo) {
  fs::remove_all(folder_);
  fs::copy(golden("gpt2_layers_apart"), folder_);
  fs::remove(folder_ + "/common.pt");
  EXPECT_THAT(outcome(folder_), HasSubstr("/common.pt: is missing, and with it the model's"));
}

TEST_F(TorchDistTest, AFolderOfCheckpointsWithoutTrackerIsExplained) {
  tests::OwnFolder root;
  fs::copy(golden("llama_tp2"), root / "iter_0000007");
  EXPECT_THAT(
      outcome(root.path()),
      HasSubstr(": no latest_checkpointed_iteration.txt says which of its folders is meant: "
                "give one, as " +
                root / "iter_0000007" + ", or --iteration"));
  EXPECT_EQ(read_megatron(root.path(), {.iteration = 7}).iteration, 7);
}

TEST_F(TorchDistTest, AnOutputLayerOfItsOwnIsNotDropped) {
  fs::remove_all(folder_);
  fs::copy(golden("llama_tp2"), folder_);
  EXPECT_EQ(outcome(folder_), "accepted");
  replace("__0_0.distcp", "untie_embeddings_and_output_weights",
          "untie_embeddings_and_output_weightZ");
  try {
    read_megatron(folder_, {.checksums = TorchFile::Checksums::ignore});
    ADD_FAILURE() << "accepted";
  } catch (const std::exception& e) {
    EXPECT_THAT(e.what(), HasSubstr("output_layer.weight: is not the embedding, but its argument "
                                    "untie_embeddings_and_output_weights is not true"));
  }
}

TEST_F(TorchDistTest, NamesThatLeaveTheFolderAreRefused) {
  replace(".metadata", "__0_0.distcp", "../../passwd");
  EXPECT_THAT(outcome(folder_),
              HasSubstr("lies in \"../../passwd\", expected a file of this folder"));
}

TEST_F(TorchDistTest, ParametersOfOtherModelsAreRefusedByName) {
  replace(".metadata", "embedding.position_embeddings.weight",
          "embedding.position_embeddings.w8ight");
  EXPECT_THAT(
      outcome(folder_),
      HasSubstr("parameter embedding.position_embeddings.w8ight is not one of a GPT model"));
}

/// A BF16 model of one layer of zeros, whose checkpoint may have an optimizer's tensor.
void write_half_model(const std::string& folder, bool optimizer) {
  using namespace foreign;
  const auto object = [](const std::string& state) {
    return call(global("argparse", "Namespace"), "") + state + "b";
  };
  std::string tensors, places;
  const auto add = [&](const std::string& name, const std::vector<uint64_t>& shape) {
    std::string extents, strides, zeros;
    uint64_t elements = 1;
    for (size_t i = shape.size(); i-- > 0; elements *= shape[i])
      strides.insert(0, number(elements));
    for (const uint64_t extent : shape) extents += number(extent), zeros += number(0);
    const std::string half = tuple(text("storage") + global("torch", "BFloat16Storage") +
                                   text("0") + text("cpu") + number(elements)) +
                             "Q";
    const std::string chunk =
        torch_file(pickle(call(global("torch._utils", "_rebuild_tensor_v2"),
                               half + number(0) + tuple(extents) + tuple(strides) + "\x89" +
                                   call(global("collections", "OrderedDict"), ""))),
                   {{"0", std::string(2 * elements, '\0')}});
    std::ofstream(folder + "/" + name, std::ios::binary) << chunk;
    tensors +=
        text(name) +
        object(dict(
            text("properties") + object(tuple(global("torch", "bfloat16"))) + text("size") +
            tuple(extents) + text("chunks") +
            list(object(dict(text("offsets") + tuple(zeros) + text("sizes") + tuple(extents))))));
    places += object(dict(text("fqn") + text(name) + text("offset") + tuple(zeros))) +
              object(dict(text("relative_path") + text(name) + text("offset") + number(0) +
                          text("length") + number(chunk.size())));
  };
  add("embedding.word_embeddings.weight", {8, 4});
  add("embedding.position_embeddings.weight", {4, 4});
  const std::string layer = "decoder.layers.0.";
  for (const char* norm : {"decoder.final_layernorm.", "decoder.layers.0.input_layernorm.",
                           "decoder.layers.0.pre_mlp_layernorm."})
    for (const char* end : {"weight", "bias"}) add(std::string(norm) + end, {4});
  for (const auto& [name, rows, columns] :
       {std::tuple("self_attention.linear_qkv.", 12, 4),
        std::tuple("self_attention.linear_proj.", 4, 4), std::tuple("mlp.linear_fc1.", 8, 4),
        std::tuple("mlp.linear_fc2.", 4, 8)}) {
    const auto height = static_cast<uint64_t>(rows), width = static_cast<uint64_t>(columns);
    add(layer + name + "weight", {height, width});
    add(layer + name + "bias", {height});
  }
  if (optimizer) add("optimizer.state.fp32_param." + layer + "mlp.linear_fc1.bias", {8});
  std::string arguments;
  for (const auto& [name, size] :
       {std::pair("num_layers", 1), std::pair("hidden_size", 4), std::pair("ffn_hidden_size", 8),
        std::pair("num_attention_heads", 2), std::pair("max_position_embeddings", 4)})
    arguments += text(name) + number(static_cast<uint64_t>(size));
  std::ofstream(folder + "/metadata.json") << R"({"sharded_backend": "torch_dist"})";
  std::ofstream(folder + "/common.pt", std::ios::binary)
      << torch_file(pickle(dict(text("args") + object(dict(arguments)))), {});
  std::ofstream(folder + "/.metadata", std::ios::binary) << pickle(object(
      dict(text("state_dict_metadata") + dict(tensors) + text("storage_data") + dict(places))));
}

TEST_F(TorchDistTest, MainParametersThatAreNotReadAreNoted) {
  const auto notes = [&](bool optimizer, bool prefer_main) {
    fs::remove_all(folder_);
    fs::create_directory(folder_);
    write_half_model(folder_, optimizer);
    return read_megatron(folder_, {.prefer_main = prefer_main}).notes;
  };
  EXPECT_THAT(notes(true, true),
              ::testing::ElementsAre(folder_ + ": the optimizer's fp32 weights are not read, those "
                                               "of 16 bits are taken in their place"));
  EXPECT_THAT(notes(true, false), ::testing::IsEmpty());
  EXPECT_THAT(notes(false, true), ::testing::IsEmpty());
}

}  // namespace
}  // namespace convert
