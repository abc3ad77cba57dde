// What a run takes from the tokenizer that its flags name. Which one that is:
// tests/tools/tokenizer/open_tokenizer_test.cc.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "libtok/tokenizer.h"
#include "tests/own.h"
#include "tests/tools/tokenizer/small_files.h"
#include "tools/cli/flags.h"
#include "trainer/config/flags.h"

namespace trainer {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
namespace fs = std::filesystem;
using namespace tests::small;

const std::string kGolden = GOLDEN_DIR "/tok/";

class VocabularyTest : public testing::Test {
 protected:
  std::string put(const std::string& name, const std::string& text) const {
    const std::string path = own_ / name;
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  std::string copy(const std::string& golden, const std::string& name) const {
    return put(name, read_text_file(kGolden + golden));
  }
  tests::OwnFolder own_;
};

template <class Run>
std::string error_of(Run run) {
  try {
    run();
    return "accepted";
  } catch (const std::exception& error) {
    return error.what();
  }
}

// A checkpoint's number of tokens counts, whatever file has more.
TEST_F(VocabularyTest, TheCheckpointsVocabularyHoldsTheEnd) {
  TrainConfig config;
  config.tokenizer_model = put("json/tokenizer.json", kJson);
  put("json/tokenizer_config.json",
      R"({"tokenizer_class":"PreTrainedTokenizerFast","eos_token":"<e>"})");
  config.vocab_size = 3;
  config.use_checkpoint_args = true;
  EXPECT_EQ(error_of([&] { find_vocabulary(config); }),
            "--tokenizer-model " + config.tokenizer_model +
                ": a document ends with id 3: the vocabulary has ids 0 to 2, is the tokenizer "
                "another model's?");
}

TEST_F(VocabularyTest, SizesAndEndsFitTogether) {
  TrainConfig config;
  config.vocab_file = put("v.json", kVocab);
  config.merge_file = put("m.txt", kMerges);
  const auto found = [&](auto change) {
    TrainConfig changed = config;
    change(changed);
    try {
      const Vocabulary v = find_vocabulary(changed);
      return std::to_string(v.vocab_size) + " " + std::to_string(v.eod_id) +
             (v.note.empty() ? "" : " " + v.note);
    } catch (const cli::UsageError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(found([](TrainConfig&) {}), "3 -1");
  EXPECT_EQ(found([](TrainConfig& c) { c.vocab_size = 3; }), "3 -1");
  EXPECT_EQ(found([](TrainConfig& c) { c.vocab_size = 2; }),
            "--vocab-size 2 is less than the tokenizer's 3");
  EXPECT_EQ(found([](TrainConfig& c) {
              c.vocab_size = 2;
              c.use_checkpoint_args = true;
            }),
            "2 -1 the tokenizer has 3 tokens, the checkpoint's vocabulary 2: the others must not "
            "occur");
  EXPECT_EQ(found([](TrainConfig& c) { c.extra_vocab_size = 4; }), "7 -1");
  EXPECT_EQ(found([](TrainConfig& c) { c.eod_id = 2; }), "3 2");
  EXPECT_EQ(found([](TrainConfig& c) { c.eod_id = 3; }),
            "--eod-id 3: the vocabulary has ids 0 to 2");
  EXPECT_EQ(found([](TrainConfig& c) {
              c.eod_id = 3;
              c.extra_vocab_size = 1;
            }),
            "4 3");
  for (bool TrainConfig::*flag : {&TrainConfig::eod_mask_loss, &TrainConfig::reset_position_ids,
                                  &TrainConfig::reset_attention_mask}) {
    EXPECT_THAT(found([&](TrainConfig& c) { c.*flag = true; }), HasSubstr("need --eod-id"));
    EXPECT_EQ(found([&](TrainConfig& c) {
                c.*flag = true;
                c.eod_id = 0;
              }),
              "3 0");
  }
  config = {};
  EXPECT_THAT(found([](TrainConfig&) {}), HasSubstr("--vocab-file is missing"));
  EXPECT_EQ(found([](TrainConfig& c) { c.vocab_size = 9; }), "9 -1");
}

// With the type of a tokenizer Megatron does not read --vocab-size; TikTokenizer cuts its list.
TEST_F(VocabularyTest, TheTypeOfATokenizerCountsItsOwnTokens) {
  TrainConfig config;
  config.vocab_file = put("v.json", kVocab);
  config.merge_file = put("m.txt", kMerges);
  const auto found = [&](const std::string& type, int64_t size) {
    TrainConfig typed = config;
    typed.tokenizer_type = type;
    typed.vocab_size = size;
    const Vocabulary v = find_vocabulary(typed);
    return std::to_string(v.vocab_size) + " " + v.note;
  };
  EXPECT_EQ(found("GPT2BPETokenizer", 9),
            "3 --vocab-size 9 changes nothing: GPT2BPETokenizer has 3 tokens");
  EXPECT_EQ(found("HuggingFaceTokenizer", 2),
            "3 --vocab-size 2 changes nothing: HuggingFaceTokenizer has 3 tokens");
  EXPECT_EQ(found("GPT2BPETokenizer", 3), "3 ");
  EXPECT_EQ(found("", 9), "9 --vocab-size 9 counts, not the tokenizer's 3 tokens");
  EXPECT_EQ(found("", 3), "3 ");
  config.use_checkpoint_args = true;  // the number is the checkpoint's.
  EXPECT_EQ(found("GPT2BPETokenizer", 9), "9 ");
  TrainConfig list;
  list.tokenizer_type = "TikTokenizer";
  list.tokenizer_model = copy("sentencepiece/nemotron.json", "nemotron.json");
  list.vocab_size = 2000;
  EXPECT_EQ(find_vocabulary(list).vocab_size, 2000);
  EXPECT_EQ(find_vocabulary(list).note, "");
}

TEST_F(VocabularyTest, NullTokenizerNamesTheIdOfEarlierReleases) {
  TrainConfig config;
  config.tokenizer_type = "NullTokenizer";
  config.vocab_size = 100;
  EXPECT_EQ(find_vocabulary(config).vocab_size, 100);
  EXPECT_EQ(find_vocabulary(config).eod_id, 99);
  const std::string why =
      "; before megatron-core 0.18, NullTokenizer has it, too: give --vocab-size 101";
  EXPECT_EQ(find_vocabulary(config).one_above, why);
  const auto refused = [&](int64_t eod) {
    config.eod_id = eod;
    return error_of([&] { find_vocabulary(config); });
  };
  EXPECT_EQ(refused(100), "--eod-id 100: the vocabulary has ids 0 to 99" + why);
  EXPECT_EQ(refused(101), "--eod-id 101: the vocabulary has ids 0 to 99");
  TrainConfig plain;
  plain.vocab_size = 100;
  EXPECT_EQ(find_vocabulary(plain).one_above, "");
  EXPECT_EQ(find_vocabulary(plain).note, "");
}

// The numbers of rows in megatron_patch/tokenizer/__init__.py, of a tokenizer with three tokens and
// an added one.
class PaiTest : public VocabularyTest {
 protected:
  PaiTest() { config_.tokenizer_model = put("json/tokenizer.json", kJson); }

  // Rows, and the note.
  std::string rows(const std::string& type, int64_t extra, const std::string& load = "") {
    config_.patch_tokenizer_type = type;
    config_.extra_vocab_size = extra;
    config_.load = load;
    try {
      const Vocabulary v = find_vocabulary(config_);
      return std::to_string(pad_vocab_size(config_, v.vocab_size)) +
             (v.note.empty() ? "" : " " + v.note);
    } catch (const cli::UsageError& error) {
      return error.what();
    }
  }
  TrainConfig config_;
};

TEST_F(PaiTest, EachTypeHasItsRows) {
  for (const char* type :
       {"Qwen2Tokenizer", "Qwen3Tokenizer", "Qwen2VLTokenizer", "QwenTokenizer", "QwenVLTokenizer",
        "LLama3Tokenizer", "LLama2Tokenizer", "LLamaTokenizer", "MixtralTokenizer",
        "MistralTokenizer", "BaichuanTokenizer", "FalconTokenizer", "OPTTokenizer", "YiTokenizer"})
    EXPECT_EQ(rows(type, 421), "424") << type;
  EXPECT_EQ(rows("DeepSeekV2Tokenizer", 2400), "2402");
  const auto fixed = [](const std::string& count, const std::string& type) {
    return count +
           " --extra-vocab-size 5 changes nothing: Pai-Megatron-Patch does not add it to a " + type;
  };
  for (const auto& [type, count] : {std::pair("BloomTokenizerFromHF", "250880"),
                                    {"ChatGLMTokenizerFromHF", "130528"},
                                    {"GLM10BZHTokenizerFromHF", "50048"},
                                    {"IcetkGLM130BTokenizer", "150528"},
                                    {"StarcoderTokenizerFromHF", "49152"},
                                    {"VicunaTokenizerFromHF", "32000"},
                                    {"BloomTokenizerFromCustom", "134298"}}) {
    EXPECT_EQ(rows(type, 0), count);
    EXPECT_EQ(rows(type, 5), fixed(count, type));
  }
  // Megatron's own tokenizer, with its padding.
  EXPECT_EQ(rows("GPT2BPETokenizer", 5), fixed("128", "GPT2BPETokenizer"));
  // Without a type the tokens are added to all, and padded.
  EXPECT_EQ(rows("", 421), "512");
  // Pai's own type where none is given, which it does not read.
  config_.tokenizer_type = "NullTokenizer";
  EXPECT_EQ(rows("Qwen2Tokenizer", 421), "424");
  config_.tokenizer_type = "Gpt2";
  EXPECT_THAT(rows("Qwen2Tokenizer", 421), StartsWith("--tokenizer-type Gpt2: expected one of "));
  config_.tokenizer_type = "";
  EXPECT_THAT(
      rows("Qwen9Tokenizer", 421),
      StartsWith("--patch-tokenizer-type Qwen9Tokenizer: expected one of Qwen2Tokenizer, "));
}

// As in Pai's scripts, which have no --tokenizer-model.
TEST_F(PaiTest, TheTokenizerIsThatOfLoad) {
  const std::string folder = fs::path(config_.tokenizer_model).parent_path();
  config_.tokenizer_model.clear();
  EXPECT_EQ(rows("Qwen2Tokenizer", 421, folder), "424");
  EXPECT_EQ(rows("Qwen2Tokenizer", 421, folder + "/none"),
            "--tokenizer-model is missing: the folder of the tokenizer, which Pai-Megatron-Patch "
            "takes from --load for --patch-tokenizer-type Qwen2Tokenizer");
}

TEST_F(PaiTest, RowsThatUsersKnow) {
  config_.tokenizer_model.clear();
  const auto known = [&](int64_t base, const std::string& type, int64_t extra) {
    config_.vocab_size = base;
    return rows(type, extra);
  };
  EXPECT_EQ(known(128000, "LLama3Tokenizer", 256), "128256");
  EXPECT_EQ(known(151643, "Qwen2Tokenizer", 421), "152064");
  EXPECT_EQ(known(151643, "Qwen2Tokenizer", 293), "151936");
  EXPECT_EQ(known(100002, "DeepSeekV2Tokenizer", 2400), "102400");
}

TEST_F(PaiTest, IdsAndRanksMustFitTheRows) {
  EXPECT_EQ(rows("Qwen2Tokenizer", 0),
            "--patch-tokenizer-type Qwen2Tokenizer: 3 rows, as in Pai-Megatron-Patch, and the "
            "tokenizer has ids up to 3: give --extra-vocab-size 1 or more, or --padded-vocab-size");
  EXPECT_EQ(rows("DeepSeekV2Tokenizer", 1),
            "--patch-tokenizer-type DeepSeekV2Tokenizer: 3 rows, as in Pai-Megatron-Patch, and the "
            "tokenizer has ids up to 3: give --extra-vocab-size 2 or more, or --padded-vocab-size");
  EXPECT_EQ(rows("Qwen2Tokenizer", 1), "4");
  config_.tensor_model_parallel_size = 4;
  EXPECT_EQ(rows("Qwen2Tokenizer", 421), "424");
  EXPECT_EQ(rows("Qwen2Tokenizer", 422),
            "--patch-tokenizer-type Qwen2Tokenizer: 425 rows, not padded, as in "
            "Pai-Megatron-Patch, and --tensor-model-parallel-size 4 does not divide them: give "
            "another --extra-vocab-size, or --padded-vocab-size");
  config_.padded_vocab_size = 512;
  EXPECT_EQ(rows("Qwen2Tokenizer", 422), "512");
  EXPECT_EQ(rows("Qwen2Tokenizer", 0), "512");
  EXPECT_EQ(find_vocabulary(config_).vocab_size, 4);  // the added token's id is one.
}

TEST_F(PaiTest, TheFlagForTheNumberOfTokensIsNotRead) {
  config_.vocab_size = 100;
  EXPECT_EQ(rows("LLama3Tokenizer", 256),
            "259 --vocab-size 100 changes nothing: LLama3Tokenizer has 3 tokens");
  config_.vocab_size.reset();
  EXPECT_EQ(rows("BloomTokenizerFromCustom", 0, "bloom"), "134298");
  config_.tokenizer_model = put("vocab/tokenizer.json", kJson);
  EXPECT_THAT(rows("BloomTokenizerFromCustom", 0, "bloom-mg"), HasSubstr("ids up to 3"));
  config_.tokenizer_model.clear();
  config_.vocab_size = 130;
  EXPECT_EQ(rows("BloomTokenizerFromCustom", 0, "bloom-mg"), "256");
}

// What manifests and checkpoints are compared with: the identity, where the files say all of it.
TEST_F(VocabularyTest, TheRunsTokenizerHasItsIdentityAndItsFlags) {
  TrainConfig config;
  config.vocab_file = put("pair/vocab.json", kVocab);
  config.merge_file = put("pair/merges.txt", kMerges);
  const Vocabulary pair = find_vocabulary(config);
  EXPECT_EQ(pair.identity, tok::Tokenizer::from_gpt2(kVocab, kMerges).identity());
  EXPECT_EQ(pair.files, "--vocab-file " + config.vocab_file + " --merge-file " + config.merge_file);
  TrainConfig list;
  list.tokenizer_type = "TikTokenizer";
  list.tokenizer_model = copy("sentencepiece/nemotron.json", "nemotron.json");
  list.vocab_size = 2000;
  EXPECT_EQ(find_vocabulary(list).identity, "");
  list.tiktoken_pattern = "v1";
  EXPECT_NE(find_vocabulary(list).identity, "");
  EXPECT_EQ(find_vocabulary(list).files, "--tokenizer-model " + list.tokenizer_model);
  TrainConfig none;
  none.vocab_size = 5;
  EXPECT_EQ(find_vocabulary(none).identity, "");
}

}  // namespace
}  // namespace trainer
