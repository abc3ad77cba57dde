// The decoder's prompts: where they are cut, how many threads there are, and what bf16 weights do
// to the scores. The decoder against the engine and against transformers: session_test.cc.
//
// SPDX-License-Identifier: MIT
#include "trainer/generation/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "convert/hf_folder.h"
#include "convert/trainer_source.h"
#include "libindexed/format.h"
#include "trainer/generation/decoder_weights.h"
#include "trainer/ops/cpu/amx_gemm.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/number.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<int32_t>;

std::vector<int32_t> some_tokens(int64_t count, int32_t vocabulary) {
  std::mt19937 random(6);
  Tokens tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % uint32_t(vocabulary));
  return tokens;
}

/// The scores after the last token of a text that is appended in pieces.
std::vector<float> scores_of(Decoder& decoder, const Tokens& text,
                             const std::vector<size_t>& cuts) {
  decoder.reset();
  std::vector<float> scores;
  size_t begin = 0;
  for (const size_t size : cuts) {
    scores = decoder.append(std::span(text).subspan(begin, size));
    begin += size;
  }
  EXPECT_EQ(begin, text.size());
  return scores;
}

class PromptTest : public testing::TestWithParam<const char*> {
 protected:
  static ModelSpec spec() {
    ModelSpec spec = family_defaults(GetParam());
    spec.num_layers = 2;
    spec.hidden_size = 64;
    spec.num_attention_heads = 4;
    if (spec.gated()) spec.num_query_groups = 2;
    if (GetParam() == std::string("mistral")) spec.sliding_window = 290;
    spec.max_position_embeddings = 1100;
    spec.vocab_size = spec.padded_vocab_size = 64;
    spec.hidden_dropout = spec.attention_dropout = 0;
    complete(spec);
    return spec;
  }

  /// Fills parameters with numbers of bf16, the same for every decoder.
  static void fill(Decoder& decoder) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0.0f, 0.2f);
    for (const Decoder::Parameter& p : decoder.parameters()) {
      const bool norm = p.param->spec.name.ends_with("norm.weight");
      for (int64_t i = 0; i < p.tensor.elements(); ++i) {
        const uint16_t x = ops::float_to_bf16(normal(random) + (norm ? 1.0f : 0.0f));
        if (p.tensor.dtype == DType::bf16)
          p.tensor.as<uint16_t>()[i] = x;
        else
          p.tensor.as<float>()[i] = ops::bf16_to_float(x);
      }
    }
  }
  static WeightPlace narrow(const LocalParam& param) {
    return {param.shape.size() == 2 ? DType::bf16 : DType::f32};
  }
};

// Any cuts of at least four tokens, and any number of threads, give the same bits: also where a
// pass over 512 tokens would leave one to three for the next.
TEST_P(PromptTest, NeitherCutsNorThreadsChangeABit) {
  ops::cpu::CpuOps one(1), three(3);
  for (const bool bf16 : {false, true}) {
    const std::function<WeightPlace(const LocalParam&)> place =
        bf16 ? narrow : std::function<WeightPlace(const LocalParam&)>();
    Decoder decoder(spec(), DType::f32, 1100, one, place),
        other(spec(), DType::f32, 1100, three, place);
    fill(decoder);
    fill(other);
    for (const size_t length : {5u, 300u, 513u, 515u, 516u, 1027u}) {
      const Tokens text = some_tokens(static_cast<int64_t>(length), 64);
      const std::vector<float> whole = scores_of(decoder, text, {length});
      EXPECT_EQ(scores_of(other, text, {length}), whole) << length;
      if (length < 8) continue;
      EXPECT_EQ(scores_of(other, text, {4, length - 4}), whole) << length;
      EXPECT_EQ(scores_of(other, text, {length - 4, 4}), whole) << length;
      EXPECT_EQ(scores_of(decoder, text, {length / 2, length - length / 2}), whole) << length;
      EXPECT_EQ(scores_of(decoder, text, {71, 129, length - 200}), whole) << length;
    }
  }
}

// Scores of a long prompt are those of its tokens one at a time, but for the last bits.
TEST_P(PromptTest, AtOnceIsTokenByToken) {
  ops::cpu::CpuOps ops(2);
  Decoder decoder(spec(), DType::f32, 700, ops, narrow);
  fill(decoder);
  const Tokens text = some_tokens(600, 64);
  const std::vector<float> at_once = scores_of(decoder, text, {600});
  const std::vector<float> alone = scores_of(decoder, text, std::vector<size_t>(600, 1));
  for (size_t i = 0; i < at_once.size(); ++i)
    EXPECT_NEAR(at_once[i], alone[i], 1e-4f * (1 + std::fabs(alone[i])));
}

INSTANTIATE_TEST_SUITE_P(Families, PromptTest,
                         testing::Values("gpt2", "gpt_neox", "llama", "mistral"));

// Weights in bf16 are multiplied as they lie in the file, and give bit for bit the scores that
// copies in fp32 give: with one token (a product of one row), with three, and, where there are no
// tiles of bf16, with more.
class NarrowDecoderTest : public testing::TestWithParam<const char*> {
 protected:
  NarrowDecoderTest() {
    std::string name = fs::temp_directory_path() / "decoder_test.XXXXXX";
    root_ = ::mkdtemp(name.data());
    const convert::CanonicalModel model =
        convert::read_hf_folder(std::string(GOLDEN_DIR) + "/convert/families/" + GetParam());
    convert::write_hf_folder(model, convert::choose_family(model.spec), {},
                             {.folder = root_ + "/hf", .dtype = "BF16"});
    convert::write_trainer_checkpoint(convert::read_hf_folder(root_ + "/hf"), root_ + "/run", 64);
  }
  ~NarrowDecoderTest() override { fs::remove_all(root_); }

  static std::vector<float> scores(Decoder& decoder, const std::vector<size_t>& cuts) {
    std::vector<float> all;
    const Tokens tokens = {3, 14, 15, 9, 2, 6, 5, 7, 8, 4, 1};
    size_t first = 0;
    decoder.reset();
    for (const size_t count : cuts) {
      const std::vector<float> row = decoder.append(std::span(tokens).subspan(first, count));
      all.insert(all.end(), row.begin(), row.end());
      first += count;
    }
    return all;
  }

  std::string root_;
};

TEST_P(NarrowDecoderTest, GivesTheScoresOfWeightsInFp32) {
  for (const int threads : {1, 3}) {
    ops::cpu::CpuOps ops(threads);
    for (const char* folder : {"/hf", "/run"}) {
      const DecoderModel model = open_decoder_model(root_ + folder, std::nullopt);
      Decoder wide(model.spec, DType::f32, 12, ops);
      Decoder narrow(model.spec, DType::f32, 12, ops, model.place);
      model.load(wide, ops);
      model.load(narrow, ops);
      int in_place = 0, matrices = 0, transposed = 0;
      for (const Decoder::Parameter& p : narrow.parameters()) {
        const bool matrix = p.param->shape.size() == 2;
        EXPECT_EQ(p.tensor.dtype, matrix ? DType::bf16 : DType::f32) << p.param->spec.name;
        in_place += p.in_place;
        matrices += matrix;
        transposed += p.transposed;
      }
      // All of them: GPT-2's (I, O) matrices as they lie there, q, k and v in pieces.
      EXPECT_EQ(in_place, matrices) << folder;
      const bool turned = folder == std::string("/hf") && GetParam() == std::string("gpt2");
      EXPECT_EQ(transposed, turned ? 4 * model.spec.num_layers : 0) << folder;
      EXPECT_EQ(scores(narrow, {1, 3, 2, 3, 1}), scores(wide, {1, 3, 2, 3, 1})) << folder;
      const std::vector<float> is = scores(narrow, {1, 3, 6, 1}),
                               wanted = scores(wide, {1, 3, 6, 1});
      ASSERT_EQ(is.size(), wanted.size());
      // Both sum in fp32, in different orders: a few ulp of scores up to 1, in two layers.
      const float tolerance = ops::cpu::has_amx() ? 2e-6f : 0.0f;
      for (size_t i = 0; i < is.size(); ++i)
        ASSERT_NEAR(is[i], wanted[i], tolerance) << folder << ", " << threads << " threads";
    }
  }
}

// After prompts of several lengths the most probable tokens are those of weights in fp32.
TEST_P(NarrowDecoderTest, ChoosesTheTokensOfWeightsInFp32) {
  ops::cpu::CpuOps ops(2);
  const DecoderModel model = open_decoder_model(root_ + "/hf", std::nullopt);
  const int64_t room = model.spec.max_position_embeddings;
  Decoder wide(model.spec, DType::f32, room, ops);
  Decoder narrow(model.spec, DType::f32, room, ops, model.place);
  model.load(wide, ops);
  model.load(narrow, ops);
  std::set<int32_t> chosen;
  for (const int64_t length : {4, 5, 7, 9, 12}) {
    const Tokens prompt = some_tokens(length, static_cast<int32_t>(model.spec.vocab_size));
    Tokens texts[2];
    for (Decoder* decoder : {&wide, &narrow}) {
      decoder->reset();
      std::vector<float> scores = decoder->append(prompt);
      while (true) {
        const int32_t next = int32_t(std::ranges::max_element(scores) - scores.begin());
        texts[decoder == &narrow].push_back(next);
        chosen.insert(next);
        if (decoder->length() == room) break;
        scores = decoder->append(std::span(&next, 1));
      }
    }
    EXPECT_EQ(texts[1], texts[0]) << length;
  }
  EXPECT_GT(chosen.size(), 1u);
}

TEST_P(NarrowDecoderTest, ADamagedByteIsRefusedWhereItLies) {
  const std::string file = root_ + "/run/iter_0000000/rank_00000_model.safetensors";
  std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
  out.seekg(-1, std::ios::end);
  const int value = out.get();
  out.seekp(-1, std::ios::end);
  out.put(static_cast<char>(value ^ 1));
  out.close();
  ops::cpu::CpuOps ops(1);
  const DecoderModel model = open_decoder_model(root_ + "/run", std::nullopt);
  Decoder decoder(model.spec, DType::f32, 12, ops, model.place);
  EXPECT_THROW(model.load(decoder, ops), indexed::FormatError);
}

// A model of the family as a folder in bf16, with random weights.
void write_random_folder(const std::string& folder, ModelSpec spec) {
  complete(spec);
  convert::CanonicalModel model;
  model.spec = spec;
  model.dtype = "BF16";
  uint32_t seed = 0;
  for (const convert::CanonicalEntry& entry : convert::canonical_entries(spec)) {
    convert::TensorSource source{"F32", entry.shape, {}, entry.name};
    source.read_rows = [&entry, row = source.row_bytes() / 4, seed = ++seed](
                           int64_t first, int64_t count, std::byte* out) {
      for (int64_t i = first * row; i < (first + count) * row; ++i) {
        std::minstd_rand random(seed * 1000003u + static_cast<uint32_t>(i) * 7u);
        random.discard(3);
        const float number = static_cast<float>(random() % 2001) / 5000.0f - 0.2f;
        std::memcpy(out + (i - first * row) * 4, &number, 4);
      }
    };
    model.tensors[entry.name] = source;
  }
  convert::write_hf_folder(model, convert::choose_family(spec), {},
                           {.folder = folder, .dtype = "BF16"});
}

// Every matrix of a folder is multiplied where it lies in the file, and the scores are bit for bit
// those of copies in the model's form: with one token and a few, with AMX's tiles and without, and
// beyond one pass of 512.
class InPlaceDecoderTest : public testing::TestWithParam<const char*> {
 protected:
  InPlaceDecoderTest() {
    std::string name = fs::temp_directory_path() / "in_place_test.XXXXXX";
    root_ = ::mkdtemp(name.data());
    ModelSpec spec = family_defaults(GetParam());
    spec.num_layers = 2;
    spec.num_attention_heads = spec.num_query_groups = 25;
    if (spec.gated()) spec.num_query_groups = 5;
    spec.kv_channels = 12;
    spec.hidden_size = 300;
    spec.ffn_hidden_size = 700;
    spec.max_position_embeddings = 600;
    spec.vocab_size = spec.padded_vocab_size = 70;
    spec.hidden_dropout = spec.attention_dropout = 0;
    write_random_folder(root_, spec);
  }
  ~InPlaceDecoderTest() override { fs::remove_all(root_); }

  std::string root_;
};

TEST_P(InPlaceDecoderTest, GivesTheBitsOfCopies) {
  const DecoderModel model = open_decoder_model(root_, std::nullopt);
  const auto copies = [&](const LocalParam& param) {
    return WeightPlace{.dtype = model.place(param).dtype};
  };
  ops::cpu::CpuOps one(1), three(3);
  Decoder copied(model.spec, DType::f32, 600, one, copies);
  Decoder in_place(model.spec, DType::f32, 600, three, model.place);
  model.load(copied, one);
  model.load(in_place, three);
  for (const Decoder::Parameter& p : copied.parameters()) EXPECT_FALSE(p.in_place);
  int pieces = 0;
  for (const Decoder::Parameter& p : in_place.parameters()) {
    EXPECT_EQ(p.in_place, p.param->shape.size() == 2) << p.param->spec.name;
    pieces += !p.pieces.empty();
  }
  EXPECT_GE(pieces, model.spec.num_layers);
  const Tokens text = some_tokens(525, 70);
  for (const std::vector<size_t>& cuts :
       {std::vector<size_t>{1, 2, 3, 1}, {4, 1}, {17, 1, 1}, {130, 1}, {525}}) {
    size_t length = 0;
    for (const size_t size : cuts) length += size;
    const Tokens begin(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(length));
    const std::vector<float> is = scores_of(in_place, begin, cuts);
    EXPECT_EQ(is, scores_of(copied, begin, cuts)) << length;
    EXPECT_TRUE(std::ranges::all_of(is, [](float x) { return std::isfinite(x); }));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, InPlaceDecoderTest,
                         testing::Values("gpt2", "opt", "llama", "qwen2"));

INSTANTIATE_TEST_SUITE_P(Families, NarrowDecoderTest,
                         testing::Values("gpt2", "opt", "gpt_neox", "llama", "qwen3"));

}  // namespace
}  // namespace trainer
