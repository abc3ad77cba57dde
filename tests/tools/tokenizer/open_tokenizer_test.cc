// SPDX-License-Identifier: MIT
// Which tokenizer flags and files name, what ends its documents, which flags do not count, and the
// names in the errors. That every program asks here: tests/tools/one-tokenizer.sh.
#include "tools/tokenizer/open_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/own.h"
#include "tests/tools/tokenizer/small_files.h"
#include "tools/cli/flags.h"

namespace tokenizer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
namespace fs = std::filesystem;

using namespace tests::small;

std::string error_of(const Flags& flags) {
  try {
    open(flags);
    return "accepted";
  } catch (const std::exception& error) {
    return error.what();
  }
}
int64_t size_of(const Flags& flags) { return open(flags).tokenizer->vocab_size(); }

class OpenTokenizer : public testing::Test {
 protected:
  std::string put(const std::string& name, const std::string& text) const {
    const std::string path = own_ / name;
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  std::string copy(const std::string& golden, const std::string& name) const {
    const std::string path = put(name, "");
    fs::copy_file(GOLDEN_DIR "/tok/" + golden, path, fs::copy_options::overwrite_existing);
    return path;
  }
  /// GPT-2's 256 bytes.
  std::string put_ranks(const std::string& name) const {
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string ranks;
    for (size_t byte = 0; byte < 256; ++byte) {
      ranks += {kDigits[byte >> 2], kDigits[(byte & 3) << 4]};
      ranks += "== " + std::to_string(byte) + "\n";
    }
    return put(name, ranks);
  }
  tests::OwnFolder own_;
};

TEST_F(OpenTokenizer, EachFormIsFoundByNameAndContent) {
  const std::string vocab = put("pair/vocab.json", kVocab);
  const std::string merges = put("pair/merges.txt", kMerges);
  EXPECT_EQ(size_of({.vocab_file = vocab, .merge_file = merges}), 3);
  EXPECT_EQ(size_of({.model = own_ / "pair"}), 3);
  EXPECT_EQ(size_of({.vocab_file = own_ / "pair"}), 3);
  EXPECT_EQ(size_of({.model = put("json/tokenizer.json", kJson)}), 4);
  EXPECT_EQ(size_of({.vocab_file = own_ / "json/tokenizer.json"}), 4);
  EXPECT_EQ(size_of({.model = own_ / "json"}), 4);
  EXPECT_EQ(size_of({.model = put("json/other.json", kJson)}), 4);
  EXPECT_EQ(size_of({.model = put("no-suffix", kJson)}), 4);
  const std::string model = copy("sentencepiece/llama.model", "sp/tokenizer.model");
  EXPECT_EQ(size_of({.model = model}), 1500);
  EXPECT_EQ(size_of({.vocab_file = model}), 1500);
  EXPECT_THAT(error_of({.model = own_ / "sp"}), HasSubstr("no file names its tokenizer_class"));
  const std::string list = copy("sentencepiece/nemotron.json", "list.model");
  EXPECT_EQ(size_of({.model = list, .vocab_size = 2000}), 2000);
  EXPECT_FALSE(open({}).tokenizer);
}

TEST_F(OpenTokenizer, ATiktokenFileIsReadUnderEitherFlagAndPacked) {
  const std::string file = put_ranks("gpt2.tiktoken");
  EXPECT_EQ(open({.model = file}).eod, 50256);
  const Opened beside = open({.vocab_file = file, .merge_file = "unused"});
  EXPECT_EQ(beside.eod, 50256);
  EXPECT_THAT(beside.notes,
              ElementsAre("--merge-file unused: no effect beside --vocab-file " + file));
  const std::string own = put_ranks("own.tiktoken");
  EXPECT_THAT(error_of({.model = own}),
              StartsWith(own + ": tiktoken: encoding \"own\": known are"));
  EXPECT_EQ(open({.model = own, .tiktoken_encoding = "gpt2"}).eod, 50256);
  ASSERT_EQ(std::system(("gzip -k " + file).c_str()), 0);
  EXPECT_EQ(open({.model = file + ".gz"}).identity, open({.model = file}).identity);
  const std::string json = put("j.json", kJson);
  EXPECT_EQ(error_of({.model = json, .tiktoken_encoding = "gpt2"}),
            "--tiktoken-encoding: " + json + " is no .tiktoken file");
  EXPECT_EQ(error_of({.tiktoken_encoding = "gpt2"}), "--tiktoken-encoding needs --tokenizer-model");
}

// A folder's tokenizer.json and pair are read with what lies beside them; any other file, one of
// HFTokenizer, and a pair with a type without.
TEST_F(OpenTokenizer, TheConfigurationBesideAFileCounts) {
  const auto eod = [](const Flags& flags) { return open(flags).eod; };
  const std::string json = put("json/tokenizer.json", kJson);
  const std::string other = put("json/other.json", kJson);
  put("json/tokenizer_config.json",
      R"({"tokenizer_class":"PreTrainedTokenizerFast","eos_token":"<e>"})");
  EXPECT_EQ(eod({.model = own_ / "json"}), 3);
  EXPECT_EQ(eod({.model = json}), 3);
  EXPECT_EQ(eod({.vocab_file = json}), 3);
  EXPECT_EQ(eod({.type = "HFTokenizer", .vocab_file = json}), std::nullopt);
  EXPECT_EQ(eod({.type = "HFTokenizer", .model = json}), 3);
  EXPECT_EQ(eod({.model = other}), std::nullopt);
  Flags pair{.vocab_file = put("pair/vocab.json", kVocab),
             .merge_file = put("pair/merges.txt", kMerges)};
  put("pair/tokenizer_config.json", R"({"tokenizer_class":"GPT2Tokenizer","eos_token":"ab"})");
  EXPECT_EQ(eod(pair), 2);
  pair.special_tokens = {"<x>"};
  EXPECT_EQ(open(pair).folder, own_ / "pair");
  EXPECT_EQ(size_of(pair), 5);
  pair.special_tokens.clear();
  pair.type = "GPT2BPETokenizer";
  EXPECT_EQ(eod(pair), std::nullopt);
}

TEST_F(OpenTokenizer, ErrorsNameTheFileThatTheUserNamed) {
  const std::string vocab = put("v.json", kVocab), merges = put("m.txt", kMerges);
  const std::string bad = put("bad", "[1"), wrong = put("wrong", "#version: 0.2\na b\nonly\n");
  EXPECT_THAT(error_of({.vocab_file = bad, .merge_file = merges}), StartsWith(bad + ":"));
  EXPECT_THAT(error_of({.vocab_file = vocab, .merge_file = wrong}), StartsWith(wrong + ":"));
  EXPECT_THAT(error_of({.vocab_file = vocab, .merge_file = wrong}), Not(HasSubstr("merges.txt")));
  const std::string json = put("j.json", "{"), text = put("t.json", "words");
  EXPECT_THAT(error_of({.model = json}), StartsWith(json + ":"));
  EXPECT_THAT(error_of({.model = json}), Not(HasSubstr("tokenizer.json")));
  EXPECT_THAT(error_of({.model = text}), HasSubstr("not valid JSON"));
  put("folder/tokenizer.json", "{");
  EXPECT_THAT(error_of({.model = own_ / "folder"}), StartsWith(own_ / "folder/tokenizer.json:"));
  const std::string list = put("list.json", "[]");
  EXPECT_THAT(error_of({.type = "Llama2Tokenizer", .model = list}),
              list + ": not a SentencePiece model");
  EXPECT_THAT(error_of({.model = put("x.model", "{}")}), HasSubstr("not a SentencePiece model"));
  fs::create_directories(own_ / "empty");
  EXPECT_EQ(error_of({.model = own_ / "empty"}),
            own_ /
                "empty: neither tokenizer.json nor vocab.json with merges.txt nor "
                "tokenizer.model nor tekken.json there");
  EXPECT_THAT(error_of({.model = own_ / "none"}),
              StartsWith("--tokenizer-model " + own_ / "none" + " (nothing is downloaded: "));
}

TEST_F(OpenTokenizer, RefusalsBeforeAnythingIsOpened) {
  for (const auto& [flags, error] : std::initializer_list<std::pair<Flags, std::string>>{
           {{.merge_file = "m"}, "--merge-file needs --vocab-file"},
           {{.vocab_file = "x-vocab.json"}, "--vocab-file x-vocab.json needs --merge-file"},
           {{.model = "t", .vocab_file = "v"},
            "--tokenizer-model and --vocab-file name two tokenizers, and no --tokenizer-type says "
            "which counts"},
           {{.model = "t", .merge_file = "m"},
            "--tokenizer-model and --merge-file name two tokenizers, and no --tokenizer-type says "
            "which counts"},
           {{.type = "NullTokenizer"}, "--tokenizer-type NullTokenizer needs --vocab-size"},
           {{.model = "t", .special_tokens = {"<x>"}},
            "--tokenizer-special-tokens needs --merge-file: tokenizer.json lists its own"},
           {{.model = "t", .tiktoken_pattern = "v3"},
            "--tiktoken-pattern v3: expected one of v1, v2"}}) {
    EXPECT_THAT([&] { check(flags); }, testing::ThrowsMessage<cli::UsageError>(error));
  }
  EXPECT_THAT(error_of({.type = "Gpt2", .model = "t"}),
              StartsWith("--tokenizer-type Gpt2: expected one of GPT2BPETokenizer, "));
}

// Every type of Megatron-LM, Megatron-DeepSpeed, BigScience and GPT-NeoX is known; those that
// encode by BPE are those of bpe-tokenize.
TEST(TokenizerTypes, EachTreesAreKnown) {
  for (const char* type :
       {"GPT2BPETokenizer",    "HuggingFaceTokenizer",   "HFTokenizer",
        "HFGPT2Tokenizer",     "PretrainedFromHF",       "TikTokenizer",
        "TiktokenTokenizer",   "SentencePieceTokenizer", "GPTSentencePieceTokenizer",
        "Llama2Tokenizer",     "SPMTokenizer",           "BertWordPieceLowerCase",
        "BertWordPieceCase",   "MultimodalTokenizer",    "NullMultimodalTokenizer",
        "SFTTokenizer",        "Llama3Tokenizer",        "MistralTokenizer",
        "DeepSeekV2Tokenizer", "CharLevelTokenizer"})
    EXPECT_NO_THROW(check({.type = type})) << type;
  EXPECT_NO_THROW(check({.type = "NullTokenizer", .vocab_size = 9}));
  EXPECT_THAT(encoding_types(), testing::Not(testing::Contains("BertWordPieceCase")));
}

// Of two that are named, the one that the type's class reads in Megatron or GPT-NeoX.
TEST(TokenizerTypes, TheTypeSaysWhichFilesCount) {
  const auto counted = [](const char* type) {
    return shown({.type = type, .model = "t", .vocab_file = "v", .merge_file = "m"});
  };
  for (const char* type :
       {"HuggingFaceTokenizer", "PretrainedFromHF", "HFTokenizer", "TikTokenizer",
        "SentencePieceTokenizer", "GPTSentencePieceTokenizer", "Llama2Tokenizer", ""})
    EXPECT_EQ(counted(type), "--tokenizer-model t") << type;
  EXPECT_EQ(counted("GPT2BPETokenizer"), "--vocab-file v --merge-file m");
  EXPECT_EQ(counted("HFGPT2Tokenizer"), "--vocab-file v --merge-file m");
  EXPECT_EQ(counted("SPMTokenizer"), "--vocab-file v");
  EXPECT_EQ(counted("TiktokenTokenizer"), "--vocab-file v");
  EXPECT_EQ(counted("NullTokenizer"), "");
  // Pai-Megatron-Patch's type where none is given, which it does not read.
  const Flags pais{.type = "NullTokenizer", .patch_type = "Qwen2Tokenizer", .model = "t"};
  EXPECT_EQ(shown(pais), "--tokenizer-model t");
  EXPECT_EQ(counting(pais).type, "");
  EXPECT_NO_THROW(check(pais));
  // GPT-NeoX's configurations have a merge_file beside any vocab_file.
  const auto neox = [](const char* type, const char* vocab) {
    return shown({.type = type, .vocab_file = vocab, .merge_file = "m"});
  };
  EXPECT_EQ(neox("HFTokenizer", "20B_tokenizer.json"), "--vocab-file 20B_tokenizer.json");
  EXPECT_EQ(neox("HFTokenizer", "vocab.json"), "--vocab-file vocab.json --merge-file m");
  EXPECT_EQ(neox("GPT2BPETokenizer", "v"), "--vocab-file v --merge-file m");
  EXPECT_EQ(neox("HuggingFaceTokenizer", "v"), "--vocab-file v --merge-file m");
}

TEST_F(OpenTokenizer, WhatDoesNotCountIsNamed) {
  const std::string json = put("j.json", kJson);
  const Opened model = open({.type = "HuggingFaceTokenizer",
                             .model = json,
                             .vocab_file = "v.json",
                             .merge_file = "m.txt"});
  EXPECT_THAT(model.notes, ElementsAre("--vocab-file v.json, --merge-file m.txt: no effect beside "
                                       "--tokenizer-model"));
  EXPECT_THAT(model.idle, IsEmpty());
  const Opened null = open(
      {.type = "NullTokenizer", .model = "x.model", .vocab_size = 100, .special_tokens = {"<x>"}});
  EXPECT_THAT(null.notes, ElementsAre("--tokenizer-model x.model: no effect beside "
                                      "--tokenizer-type NullTokenizer"));
  EXPECT_THAT(null.idle, ElementsAre("--tokenizer-special-tokens"));
  const auto idle = [&](Flags flags) {
    if (flags.model.empty()) flags.model = json;
    return open(flags).idle;
  };
  EXPECT_THAT(idle({.vocab_size = 9, .null_eod_id = 1}),
              ElementsAre("--vocab-size", "--null-tokenizer-eod-id"));
  EXPECT_THAT(idle({.vocab_size = 4}), IsEmpty());
  EXPECT_THAT(idle({.vocab_size = 3}), IsEmpty());  // without added tokens.
  EXPECT_THAT(idle({.tiktoken_pattern = "v1",
                    .tiktoken_num_special_tokens = 10,
                    .tiktoken_special_tokens = {"<unk>"}}),
              ElementsAre("--tiktoken-pattern", "--tiktoken-num-special-tokens",
                          "--tiktoken-special-tokens"));
  EXPECT_THAT(idle({.tiktoken_num_special_tokens = 1000}), IsEmpty());
  const std::string list = copy("sentencepiece/nemotron.json", "nemotron.json");
  EXPECT_THAT(idle({.model = list, .vocab_size = 1000, .tiktoken_num_special_tokens = 10}),
              IsEmpty());
}

// A list says neither how texts are cut nor how long it is.
TEST_F(OpenTokenizer, AListNeedsItsPatternForTexts) {
  Flags list{.model = copy("sentencepiece/nemotron.json", "nemotron.json"), .vocab_size = 2000};
  EXPECT_EQ(open(list).identity, "");
  list.encodes = true;
  EXPECT_EQ(error_of(list), "--tokenizer-model " + list.model +
                                ": a list of tokens needs --tiktoken-pattern v1 or v2");
  list.tiktoken_pattern = "v1";
  const std::string identity = open(list).identity;
  EXPECT_NE(identity, "");
  list.tiktoken_pattern = "v2";
  EXPECT_NE(open(list).identity, identity);
}

TEST_F(OpenTokenizer, TheTypesClassEndsDocuments) {
  EXPECT_EQ(open({.type = "NullTokenizer", .vocab_size = 100}).eod, 99);
  EXPECT_EQ(open({.type = "NullTokenizer", .vocab_size = 100, .null_eod_id = 5}).eod, 5);
  const std::string model = copy("sentencepiece/llama.model", "llama.model");
  EXPECT_EQ(open({.type = "GPTSentencePieceTokenizer", .model = model}).eod, 2);
  EXPECT_EQ(open({.type = "SentencePieceTokenizer", .model = model}).eod, 1502);
  std::string text = kJson;
  text.replace(text.find(R"("id":3)"), 6, R"("id":5)");
  text.replace(text.find(R"("ab":2})"), 7, R"("ab":2,"<|endoftext|>":3,"</s>":4})");
  const std::string both = put("both/tokenizer.json", text);
  put("both/tokenizer_config.json",
      R"({"tokenizer_class":"PreTrainedTokenizerFast","eos_token":"</s>"})");
  EXPECT_EQ(open({.type = "HuggingFaceTokenizer", .model = both}).eod, 4);
  EXPECT_EQ(open({.type = "SPMTokenizer", .vocab_file = both}).eod, 3);
}

}  // namespace
}  // namespace tokenizer
