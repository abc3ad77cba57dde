// SPDX-License-Identifier: MIT
// Files of tokenizers: which are made, which are copied, and the ids that follow from them. Against
// transformers itself: tests/reference/judge_tokenizer_folders.py.
#include "convert/tokenizer_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/convert/outcomes.h"
#include "tests/own.h"

namespace convert {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

TEST(TokenizerFilesTest, WrongVocabulariesAreRefused) {
  const tests::OwnFolder own;
  const std::string& folder = own.path();
  const auto refuse = [&](const std::string& vocab, const std::string& merges) {
    std::ofstream(folder + "/v.json") << vocab;
    std::ofstream(folder + "/m.txt") << merges;
    return error_of([&] { tokenizer_from_vocab(folder + "/v.json", folder + "/m.txt", 8); });
  };
  EXPECT_EQ(refuse(R"({"a":0,"b":1,"ab":2})", "#version: 0.2\na b\n"), "accepted");
  EXPECT_THAT(refuse("[]", ""), HasSubstr("not a JSON object"));
  EXPECT_THAT(refuse("{", ""), HasSubstr("not a JSON object"));
  EXPECT_THAT(refuse("{}", ""), HasSubstr("empty vocabulary"));
  EXPECT_THAT(refuse(R"({"a":0,"b":0})", ""), HasSubstr("have one id"));
  for (const char* id : {"\"0\"", "-1", "2147483648", "0.5", "null"})
    EXPECT_THAT(refuse(std::string("{\"a\":") + id + "}", ""), HasSubstr("has no id")) << id;
  EXPECT_THAT(refuse(R"({"a":0,"b":1})", "a b\n"),
              HasSubstr("m.txt:1: merge \"a b\": token \"ab\""));
  EXPECT_THAT(refuse(R"({"a":0,"b":1})", "a\n"), HasSubstr("is not two tokens"));
}

/// What transformers' LlamaTokenizer does not do as sentencepiece does is said.
TEST(TokenizerFilesTest, ASentencePieceModelBecomesALlamaTokenizer) {
  const auto files_of = [](const char* name) {
    return tokenizer_from_sentencepiece(std::string(GOLDEN_DIR) + "/tok/sentencepiece/" + name, 64);
  };
  const TokenizerFiles llama = files_of("llama.model");
  EXPECT_EQ(llama.note, "");
  EXPECT_EQ(llama.vocab_size, 1500);
  EXPECT_EQ(llama.ids["eos_token_id"], 2);
  const json config = json::parse(llama.files[0].text);
  EXPECT_EQ(config["tokenizer_class"], "LlamaTokenizer");
  EXPECT_EQ(config["unk_token"], "<unk>");
  EXPECT_FALSE(config.contains("add_prefix_space"));
  EXPECT_THAT(files_of("nfkc.model").note, HasSubstr("the model replaces characters"));
  const TokenizerFiles gemma = files_of("gemma.model");
  EXPECT_THAT(gemma.note, HasSubstr("the model has user-defined symbols"));
  EXPECT_EQ(json::parse(gemma.files[0].text)["add_prefix_space"], false);
}

class TokenizerFolderTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return own_ / name; }
  void put(const std::string& name, const std::string& text) {
    std::ofstream(path(name), std::ios::binary) << text;
  }
  TokenizerFiles read() const { return tokenizer_from_folder(own_.path(), 16); }
  static const std::string* text_of(const TokenizerFiles& files, const std::string& name) {
    for (const TokenizerFile& file : files.files)
      if (file.name == name) return &file.text;
    return nullptr;
  }
  tests::OwnFolder own_;
};

TEST_F(TokenizerFolderTest, ATextEndsWhereTransformersStops) {
  const auto ends = [&](const char* generation, const char* config) {
    put("generation_config.json", generation);
    put("config.json", config);
    return ends_of_text(own_.path());
  };
  using Ids = std::vector<int64_t>;
  EXPECT_EQ(ends_of_text(own_.path()), std::nullopt);
  EXPECT_EQ(ends(R"({"eos_token_id": [7, 3]})", R"({"eos_token_id": 5})"), Ids({7, 3}));
  EXPECT_EQ(ends(R"({"eos_token_id": 7})", R"({"eos_token_id": 5})"), Ids({7}));
  EXPECT_EQ(ends(R"({"eos_token_id": null})", R"({"eos_token_id": 5})"), Ids({5}));
  EXPECT_EQ(ends("{}", R"({"eos_token_id": [5, 2]})"), Ids({5, 2}));
  EXPECT_EQ(ends("{}", R"({"eos_token_id": null})"), std::nullopt);
  EXPECT_THAT(error_of([&] { ends(R"({"eos_token_id": [7, "a"]})", "{}"); }),
              HasSubstr("generation_config.json: key \"eos_token_id\" is [7,\"a\"], expected"));
  EXPECT_THAT(error_of([&] { ends("[]", "{}"); }), HasSubstr("not a JSON object"));
  fs::remove(path("generation_config.json"));
  put("config.json", R"({"eos_token_id": 5})");
  EXPECT_EQ(ends_of_text(own_.path()), Ids({5}));
}

TEST_F(TokenizerFolderTest, IdsComeFromTheConfigAsTheyStand) {
  put("vocab.json", R"({"a":0,"b":1,"ab":2,"<|endoftext|>":3})");
  put("merges.txt", "#version: 0.2\na b\n");
  put("tokenizer_config.json", R"({"bos_token": "a", "eos_token": "b", "pad_token": "ab"})");
  EXPECT_EQ(json(read().ids),
            json({{"bos_token_id", 0}, {"eos_token_id", 1}, {"pad_token_id", 2}}));
  put("config.json", R"({"eos_token_id": [7, 1], "bos_token_id": null, "vocab_size": 4})");
  const TokenizerFiles files = read();
  EXPECT_EQ(json(files.ids), json({{"bos_token_id", nullptr}, {"eos_token_id", {7, 1}}}));
  EXPECT_TRUE(files.copied);
  EXPECT_EQ(files.vocab_size, 4);
  ASSERT_EQ(files.model_files.size(), 1U);
  EXPECT_EQ(text_of(files, "tokenizer.json"), nullptr) << "nothing is made beside a source's files";
  EXPECT_EQ(text_of(files, "config.json"), nullptr);
  put("config.json", "[]");
  EXPECT_THAT(error_of([&] { read(); }), HasSubstr("config.json: not a JSON object"));
}

TEST_F(TokenizerFolderTest, WithoutNamesDocumentsEndAsBpeTokenizeEndsThem) {
  put("vocab.json", R"({"a":0,"b":1,"ab":2,"<eos>":3,"</s>":4})");
  put("merges.txt", "a b\n");
  const TokenizerFiles files = read();
  EXPECT_FALSE(files.copied);
  EXPECT_EQ(json(files.ids), json({{"bos_token_id", 4}, {"eos_token_id", 4}}));
  EXPECT_EQ(json::parse(*text_of(files, "tokenizer_config.json")).at("eos_token"), "</s>");
  EXPECT_EQ(json::parse(*text_of(files, "tokenizer.json")).at("added_tokens")[0].at("id"), 4);
  put("vocab.json", R"({"a":0,"b":1,"ab":2})");
  const json config = json::parse(*text_of(read(), "tokenizer_config.json"));
  EXPECT_TRUE(config.contains("eos_token")) << "GPT2Tokenizer would add one of its own";
  EXPECT_TRUE(config.at("eos_token").is_null());
}

TEST_F(TokenizerFolderTest, ATokenizerJsonAloneGetsWhatAutoTokenizerNeeds) {
  put("tokenizer.json", R"({"added_tokens": [{"id": 9, "content": "<|endoftext|>"}],
                            "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})");
  put("chat_template.jinja", "{{ x }}");
  const TokenizerFiles files = read();
  EXPECT_EQ(files.vocab_size, 10);
  EXPECT_EQ(json(files.ids), json({{"bos_token_id", 9}, {"eos_token_id", 9}}));
  EXPECT_EQ(json::parse(*text_of(files, "tokenizer_config.json")).at("tokenizer_class"),
            "PreTrainedTokenizerFast");
  EXPECT_NE(text_of(files, "chat_template.jinja"), nullptr);
}

TEST_F(TokenizerFolderTest, IdsOfOtherTokenizersAreRead) {
  put("tokenizer.json",
      R"({"model": {"type": "Unigram", "vocab": [["<unk>", 0], ["</s>", -1.5]]}})");
  put("tokenizer_config.json", R"({"eos_token": "</s>", "unk_token": "<unk>"})");
  const TokenizerFiles files = read();
  EXPECT_EQ(json(files.ids), json({{"bos_token_id", nullptr}, {"eos_token_id", 1}}));
  EXPECT_EQ(files.vocab_size, 2);
}

TEST_F(TokenizerFolderTest, WithForceNoFileOfAnotherModelStaysBesideACheckpoint) {
  const std::string folder = path("tokenizer");
  for (const char* name :
       {"added_tokens.json", "config.json", "additional_chat_templates/a.jinja", "notes"}) {
    fs::create_directories(fs::path(folder + "/" + name).parent_path());
    std::ofstream(folder + "/" + name) << "{}";
  }
  const auto there = [&](const std::string& name) { return fs::exists(folder + "/" + name); };
  TokenizerFiles files;
  files.files = {{"vocab.json", "new"}};
  const auto take_names = [&](bool replace) {
    SetAside old(own_.path(), kTracker);
    TokenizerBeside(files, folder, replace).take_names(old);
    old.keep();
  };
  take_names(false);
  EXPECT_TRUE(there("added_tokens.json"));
  take_names(true);
  EXPECT_TRUE(there("vocab.json") && there("notes"));
  EXPECT_FALSE(there("added_tokens.json") || there("config.json") ||
               there("additional_chat_templates/a.jinja"));
}

TEST_F(TokenizerFolderTest, AFolderBesideACheckpointIsFoundFromAnyPartOfIt) {
  fs::create_directories(path("root/iter_0000007/mp_rank_00"));
  fs::create_directories(path("root/tokenizer"));
  EXPECT_EQ(folder_beside_checkpoint(path("root")), "");
  put("root/tokenizer/config.json", "{}");
  for (const char* part : {"root", "root/", "root/iter_0000007", "root/iter_0000007/mp_rank_00",
                           "root/iter_0000007/mp_rank_00/model_optim_rng.pt"})
    EXPECT_EQ(folder_beside_checkpoint(path(part)), path("root/tokenizer")) << part;
  EXPECT_EQ(folder_beside_checkpoint(path("root/other.pt")), "");
  // A root may have the name of a checkpoint.
  for (const char* own :
       {"root/iter_0000004", "root/release", "root/mp_rank_x", "root/model_optim_rng.pt"}) {
    const std::string root = own;
    fs::create_directories(path(root + "/tokenizer"));
    put(root + "/tokenizer/config.json", "{}");
    fs::create_directories(path(root + "/release/mp_rank_00"));
    for (const char* part :
         {"", "/release", "/release/mp_rank_00", "/release/mp_rank_00/model_optim_rng.pt"})
      EXPECT_EQ(folder_beside_checkpoint(path(root + part)), path(root + "/tokenizer")) << part;
  }
  // The folder above what a link leads to, not above the link.
  fs::create_directories(path("proj/tokenizer"));
  put("proj/tokenizer/config.json", "{}");
  fs::create_directory_symlink(path("root/iter_0000007"), path("proj/run"));
  EXPECT_TRUE(
      fs::equivalent(folder_beside_checkpoint(path("proj/run/..")), path("root/tokenizer")));
}

}  // namespace
}  // namespace convert
