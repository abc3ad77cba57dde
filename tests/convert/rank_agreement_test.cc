// SPDX-License-Identifier: MIT
// Files of ranks that fit together by their names and shapes but are of two runs, steps or models.
// Golden: tests/golden/convert/gpt2/tp2pp2, whose ranks are written again, one of them changed.
#include "convert/rank_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <memory>

#include "convert/torch_weights.h"
#include "convert/torch_writer.h"
#include "tests/convert/outcomes.h"
#include "tests/own.h"

namespace convert {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::string golden(const std::string& name) {
  return std::string(GOLDEN_DIR) + "/convert/gpt2/" + name;
}

// What one rank's file says.
struct Rank {
  int64_t iteration = 10, heads = 4, norm_1p = 0;
  double version = 3, dropout = 0.1, rotary_base = 10000, rotary_percent = 1, epsilon = 1e-5;
  bool half = false;         ///< Its tensors are BF16.
  std::string changed = {};  ///< the ending of a tensor's name whose last byte is another
  std::string head = "word_embeddings_for_head.weight";  ///< the name of the embedding's copy
};

TensorSource with_another_byte(TensorSource source) {
  const auto bytes = std::make_shared<std::vector<std::byte>>(source.load());
  bytes->back() ^= std::byte{1};
  source.read_rows = [bytes, row = source.row_bytes()](int64_t first, int64_t count,
                                                       std::byte* out) {
    std::copy_n(bytes->begin() + first * row, count * row, out);
  };
  return {source.dtype, source.shape, source.read_rows, source.place};
}

class RankAgreement : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ / name; }

  void write(const std::string& name, const Rank& rank) {
    const auto file = std::make_shared<TorchFile>(golden("tp2pp2/iter_0000010/" + name));
    PickleBuilder out;
    out.begin_dict().text("args").begin_namespace();
    for (const auto& [key, value] :
         {std::pair("num_layers", int64_t{4}), std::pair("hidden_size", int64_t{8}),
          std::pair("ffn_hidden_size", int64_t{20}), std::pair("num_attention_heads", rank.heads),
          std::pair("max_position_embeddings", int64_t{16}),
          std::pair("tensor_model_parallel_size", int64_t{2}),
          std::pair("pipeline_model_parallel_size", int64_t{2}),
          std::pair("apply_layernorm_1p", rank.norm_1p)})
      out.text(key).integer(value);
    out.text("rotary_base").real(rank.rotary_base);
    out.text("rotary_percent").real(rank.rotary_percent);
    out.text("norm_epsilon").real(rank.epsilon);
    out.text("hidden_dropout").real(rank.dropout).end_object();
    out.text("checkpoint_version").real(rank.version).text("iteration").integer(rank.iteration);
    out.text("model").begin_dict();
    for (const auto& [tensor, source] : torch_weights(file, file->root().find("model"))) {
      const bool is_head = tensor.starts_with("word_embeddings_for_head");
      const std::string called = is_head ? rank.head : tensor;
      const bool other = !rank.changed.empty() && called.ends_with(rank.changed);
      const TensorSource own = rank.half ? convert_dtype(source, "BF16") : source;
      out.text(called).tensor(other ? with_another_byte(own) : own);
    }
    out.end_dict().end_dict();
    fs::create_directories(fs::path(path("run/" + name)).parent_path());
    write_torch_file(path("run/" + name), std::move(out), indexed::Existing::replace);
  }

  // How the checkpoint is read in which one rank differs.
  std::string with(const std::string& changed, const Rank& rank, const Rank& others = {}) {
    for (const char* name :
         {"mp_rank_00_000", "mp_rank_00_001", "mp_rank_01_000", "mp_rank_01_001"})
      write(std::string(name) + "/model_optim_rng.pt", name == changed ? rank : others);
    const std::string out = outcome(path("run"));
    if (out != "accepted") return out;
    const CanonicalModel model = read_megatron(path("run"), {});
    return model.notes.empty() ? out : model.notes.front();
  }
  // What the message says of that rank and the one that it is compared with.
  std::string says(const std::string& changed, const std::string& what, const std::string& other) {
    const auto file = [&](const std::string& rank) {
      return path("run/" + rank + "/model_optim_rng.pt");
    };
    return file(changed) + ": its " + what + " in " + file(other) + ": files of two checkpoints";
  }

  tests::OwnFolder folder_;
};

TEST_F(RankAgreement, FilesOfTwoRunsAreRefused) {
  const std::string first = "mp_rank_00_000", last = "mp_rank_01_001";
  EXPECT_EQ(with("none", {}), "accepted");
  EXPECT_EQ(with(last, {.iteration = 11}), says(last, "iteration is 11, but 10", first));
  EXPECT_EQ(with("mp_rank_01_000", {.version = 2}),
            says("mp_rank_01_000", "checkpoint_version is 2, but 3", first));
  EXPECT_EQ(with(last, {.heads = 2}), says(last, "model's num_attention_heads is 2, but 4", first));
  EXPECT_EQ(with(last, {.norm_1p = 1}),
            says(last, "argument apply_layernorm_1p is 1, but 0", first));
  EXPECT_EQ(with(last, {.dropout = 0.2}), "accepted");  // of training alone
}

TEST_F(RankAgreement, ArgumentsOutOfRangeAreRefused) {
  for (const double base : {0.0, -1.0, std::nan(""), HUGE_VAL})
    EXPECT_THAT(with("none", {}, {.rotary_base = base}),
                HasSubstr("argument rotary_base: " + std::to_string(base)));
  for (const double share : {-0.5, 1.5, std::nan("")}) {
    EXPECT_THAT(with("none", {}, {.rotary_percent = share}),
                HasSubstr("argument rotary_percent: " + std::to_string(share)));
    EXPECT_THAT(with("none", {}, {.epsilon = share}),
                HasSubstr("argument norm_epsilon: " + std::to_string(share)));
  }
}

TEST_F(RankAgreement, SumsThatAreRoundedAreNoted) {
  EXPECT_EQ(with("none", {}, {.norm_1p = 1}), "accepted");
  EXPECT_THAT(with("none", {}, {.norm_1p = 1, .half = true}),
              HasSubstr("adding one rounds them to BF16; --dtype fp32 does not"));
}

// The golden is tied; an output layer of its own, or the embedding again, stands in one more file.
TEST_F(RankAgreement, AnOutputLayerInDeepSpeedsFilesIsNotDropped) {
  fs::copy(golden("deepspeed"), path("run"), fs::copy_options::recursive);
  const auto write_head = [&](bool other) {
    for (const char* rank : {"0", "1"}) {
      const std::string of_rank = std::string("-model_0") + rank + "-model_states.pt";
      const auto file = std::make_shared<TorchFile>(path("run/global_step4/layer_01" + of_rank));
      const TensorSource words = torch_weights(file, file->root()).at("word_embeddings.weight");
      PickleBuilder out;
      out.begin_dict().text("lm_head.weight").tensor(other ? with_another_byte(words) : words);
      out.end_dict();
      write_torch_file(path("run/global_step4/layer_09" + of_rank), std::move(out),
                       indexed::Existing::replace);
    }
  };
  write_head(false);
  EXPECT_EQ(outcome(path("run")), "accepted");
  write_head(true);
  EXPECT_THAT(outcome(path("run")),
              HasSubstr("layer_09-model_00-model_states.pt: lm_head.weight: is not the embedding, "
                        "but its argument untie_embeddings_and_output_weights is not true"));
}

TEST_F(RankAgreement, CopiesThatDifferAreNoted) {
  const auto noted = [&](const std::string& changed, const std::string& tensor,
                         const std::string& other, const Rank& others = {}) {
    SCOPED_TRACE(tensor);
    Rank rank = others;
    rank.changed = tensor;
    const std::string said = with(changed, rank, others);
    EXPECT_THAT(said, HasSubstr(changed + "/model_optim_rng.pt: "));
    EXPECT_THAT(said, HasSubstr(tensor + ": is not the same as "));
    EXPECT_THAT(said, HasSubstr(other + "/model_optim_rng.pt: "));
  };
  noted("mp_rank_01_000", "layers.1.input_layernorm.weight", "mp_rank_00_000");
  noted("mp_rank_01_001", "layers.0.post_attention_layernorm.bias", "mp_rank_00_001");
  noted("mp_rank_01_001", "final_layernorm.weight", "mp_rank_00_001");
  noted("mp_rank_01_000", "layers.0.mlp.dense_4h_to_h.bias", "mp_rank_00_000");
  noted("mp_rank_01_001", "attention.dense.bias", "mp_rank_00_001");
  noted("mp_rank_01_000", "position_embeddings.weight", "mp_rank_00_000");
  for (const char* rank : {"00", "01"})
    for (const char* head : {"word_embeddings_for_head.weight", "output_layer.weight"})
      noted(std::string("mp_rank_") + rank + "_001", head, std::string("mp_rank_") + rank + "_000",
            {.head = head});
  // What is divided has other numbers on each rank, and nothing to compare with.
  EXPECT_EQ(with("mp_rank_01_000", {.changed = "layers.0.mlp.dense_4h_to_h.weight"}), "accepted");
}

TEST_F(RankAgreement, OfDeepSpeedsCopiesADifferenceIsNoted) {
  fs::copy(golden("deepspeed"), path("run"), fs::copy_options::recursive);
  EXPECT_EQ(read_megatron(path("run"), {}).notes.size(), 0U);
  const std::string step = path("run/global_step4");
  fs::copy_file(step + "/layer_03-model_01-model_states.pt",
                step + "/layer_04-model_01-model_states.pt", fs::copy_options::overwrite_existing);
  const CanonicalModel model = read_megatron(path("run"), {});
  ASSERT_EQ(model.notes.size(), 1U);
  EXPECT_THAT(model.notes[0], HasSubstr("/layer_04-model_01-model_states.pt: "));
  EXPECT_THAT(model.notes[0], HasSubstr("is not the same as " + step + "/layer_04-model_00-"));
}

}  // namespace
}  // namespace convert
