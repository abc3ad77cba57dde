// What the configuration files of a folder say without naming it: the class, by model_type, and
// the tokens that they add. As seen with transformers 5.24.
// Not here: whole folders against goldens (folder_test.cc).
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "libtok/loaders.h"
#include "tests/tok/tok_data.h"

namespace tok_test {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

// The classes are those of transformers 5.24 for these model_types.
TEST(FolderModelTypes, SayTheClassOfAPair) {
  const auto with = [](const std::string& type) {
    Files files = {{"vocab.json", R"({"a":0,"b":1})"}, {"merges.txt", "#version: 0.2\n"}};
    if (!type.empty()) files["config.json"] = R"({"model_type": ")" + type + "\"}";
    return files;
  };
  for (const auto& [type, name] : {std::pair("roberta", "RobertaTokenizer"),
                                   {"bart", "RobertaTokenizer"},
                                   {"longformer", "RobertaTokenizer"},
                                   {"blenderbot", "BlenderbotTokenizer"},
                                   {"blenderbot-small", "BlenderbotSmallTokenizer"},
                                   {"clip", "CLIPTokenizer"},
                                   {"deberta", "DebertaTokenizer"},
                                   {"cohere", "CohereTokenizer"},
                                   {"qwen3_5", "Qwen3_5Tokenizer"},
                                   {"whisper", "WhisperTokenizer"}}) {
    EXPECT_EQ(folder_refusal(with(type)), std::string("config.json: model_type: \"") + type +
                                              "\": its " + name +
                                              " without a tokenizer.json is not supported");
  }
  const auto family = [&](const char* type) {
    const tok::TokenizerSource source = tok::read_folder(reader(with(type)));
    EXPECT_EQ(source.version_note, "") << type;
    return source.pretokenizer.stages[0];
  };
  for (const char* type : {"gpt2", "phi", "starcoder2", "olmo", "mpt", "rwkv", "codegen", ""}) {
    EXPECT_EQ(family(type), tok::Family::gpt2) << type;
  }
  EXPECT_EQ(family("qwen3_vl"), tok::Family::qwen2);
  EXPECT_EQ(family("lighton_ocr"), tok::Family::qwen2);  // the last word of its row
}

TEST(FolderModelTypes, APairWithoutAClassIsReadAsGpt2sWithALine) {
  Files files = {{"vocab.json", R"({"a":0,"b":1})"},
                 {"merges.txt", "#version: 0.2\n"},
                 {"config.json", R"({"model_type": "gpt"})"}};
  EXPECT_EQ(tok::read_folder(reader(files)).version_note,
            "model_type \"gpt\" of config.json says no class for vocab.json and merges.txt: they "
            "are read as GPT-2's");
  files["config.json"] = "{}";
  EXPECT_EQ(tok::read_folder(reader(files)).version_note, "");
  files["tokenizer_config.json"] = R"({"bos_token": "a"})";
  EXPECT_EQ(tok::read_folder(reader(files)).version_note,
            "no file names the class of vocab.json and merges.txt: they are read as GPT-2's");
  files["tokenizer_config.json"] = R"({"tokenizer_class": "GPT2Tokenizer"})";
  EXPECT_EQ(tok::read_folder(reader(files)).version_note, "");
}

TEST(FolderModelTypes, SayWhatVersion5DropsOfATokenizerJson) {
  const auto note = [](const char* type, const ordered_json& pre, const ordered_json& normalizer) {
    const ordered_json tree = {{"model",
                                {{"type", "BPE"},
                                 {"unk_token", "a"},
                                 {"vocab", {{"a", 0}, {"b", 1}}},
                                 {"merges", ordered_json::array()}}},
                               {"normalizer", normalizer},
                               {"pre_tokenizer", pre}};
    return tok::read_folder(
               reader({{"tokenizer.json", tree.dump()},
                       {"config.json", std::string(R"({"model_type": ")") + type + "\"}"}}))
        .version_note;
  };
  const ordered_json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  const ordered_json digits = {
      {"type", "Sequence"},
      {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, bytes}}};
  const ordered_json blanks = {
      {"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}};
  const ordered_json nfc = {{"type", "NFC"}};
  for (const auto& [type, name] : {std::pair("olmo", "GPTNeoXTokenizer"),
                                   {"mpt", "GPTNeoXTokenizer"},
                                   {"cohere", "CohereTokenizer"},
                                   {"qwen3_5", "Qwen3_5Tokenizer"}}) {
    EXPECT_EQ(note(type, bytes, nullptr),
              std::string("tokenizer.json is followed, as by transformers 4.46; ") + name +
                  " of transformers 5 drops its way of cutting or normalising");
  }
  EXPECT_EQ(note("olmo", bytes, nfc), "");
  EXPECT_EQ(note("cohere", digits, nfc), "");
  EXPECT_EQ(note("phi", bytes, nullptr), "");
  for (const char* type : {"phi", "starcoder2"}) {
    EXPECT_THAT(note(type, digits, nullptr), HasSubstr("GPT2Tokenizer of transformers 5 drops"));
  }
  for (const char* type : {"gemma", "gemma2", "gemma3_text"}) {
    EXPECT_THAT(note(type, blanks, nullptr), HasSubstr("GemmaTokenizer of transformers 5 drops"));
  }
  EXPECT_EQ(note("llama", digits, nullptr), "");  // 5 takes the whole file
}

// --- which tokens the configuration files add: as seen with transformers 5.24 --------------------

struct Additions {
  const char* config;
  const char* map;
  std::vector<std::string> added;  ///< ids from 2 on
};

tok::TokenizerSource folder_of_two_tokens(const char* config, const char* map,
                                          const char* padding) {
  const std::string file =
      R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}, "padding": )" +
      std::string(padding) + R"(, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
      "decoder": {"type": "ByteLevel"}})";
  return tok::read_folder(reader({{"tokenizer.json", file},
                                  {"tokenizer_config.json", config},
                                  {"special_tokens_map.json", map}}));
}

TEST(FolderAdditions, OfBothListsAndOfKeysThatOnlySomeModelsHave) {
  const Additions rows[] = {
      {R"({"additional_special_tokens": ["<a>"], "extra_special_tokens": {"image_token": "<i>"},
           "x_token": "<x>"})",
       "{}",
       {"<x>", "<i>", "<a>"}},
      {R"({"additional_special_tokens": ["<a>"], "extra_special_tokens": ["<i>"]})", "{}", {"<i>"}},
      {R"({"x_token": "<x>"})",
       R"({"image_token": "<i>", "additional_special_tokens": ["<m>"]})",
       {"<i>", "<x>", "<m>"}},
      {R"({"additional_special_tokens": ["<a>"]})",
       R"({"additional_special_tokens": ["<m>"]})",
       {"<a>"}},
      {R"({"additional_special_tokens": ["<a>"], "extra_special_tokens": {"k_token": "<k>"}})",
       R"({"additional_special_tokens": ["<m>"]})",
       {"<k>", "<m>"}},
      {R"({"extra_special_tokens": ["<a>"]})",
       R"({"extra_special_tokens": ["<m>", "<a>"]})",
       {"<a>", "<m>"}},
      {R"({"extra_special_tokens": ["<a>"]})",
       R"({"extra_special_tokens": {"m_token": "<m>"}})",
       {"<m>"}},
      {R"({"added_tokens_decoder": {}})", R"({"image_token": "<i>"})", {}},
  };
  for (const Additions& row : rows) {
    const tok::TokenizerSource source = folder_of_two_tokens(row.config, row.map, "null");
    std::vector<std::string> added;
    for (const tok::AddedToken& token : source.added_tokens) {
      EXPECT_EQ(token.id, static_cast<int32_t>(2 + added.size())) << row.config;
      added.push_back(token.content);
    }
    EXPECT_EQ(added, row.added) << row.config << row.map;
  }
}

TEST(FolderAdditions, OfTwoRolesOfATokenTheLastOnesFlagsCount) {
  const tok::TokenizerSource source =
      folder_of_two_tokens(R"({"bos_token": {"content": "<e>", "lstrip": true},
                               "eos_token": {"content": "<e>", "rstrip": true}})",
                           "{}", "null");
  ASSERT_EQ(source.added_tokens.size(), 1u);
  EXPECT_TRUE(source.added_tokens[0].rstrip);
  EXPECT_FALSE(source.added_tokens[0].lstrip);
}

TEST(FolderAdditions, ThePadTokenOfTokenizerJsonsPadding) {
  const char* padding = R"({"strategy": "BatchLongest", "pad_token": "[PAD]", "pad_id": 0})";
  const auto ids = [&](const char* config, const char* map = "{}") {
    const tok::TokenizerSource source = folder_of_two_tokens(config, map, padding);
    std::string added;
    for (const tok::AddedToken& token : source.added_tokens) added += token.content;
    return added + " " + std::to_string(source.pad_id);
  };
  EXPECT_EQ(ids(R"({"cls_token": "<c>", "bos_token": "<s>"})"), "<s>[PAD]<c> 3");
  EXPECT_EQ(ids(R"({"tokenizer_class": "PreTrainedTokenizerFast"})"), "[PAD] 2");
  EXPECT_EQ(ids(R"({"tokenizer_class": "BloomTokenizerFast"})"), "[PAD] 2");
  EXPECT_EQ(ids(R"({"pad_token": null})"), " -1");
  EXPECT_EQ(ids("{}", R"({"pad_token": null})"), " -1");
  EXPECT_EQ(ids(R"({"tokenizer_class": "GPT2Tokenizer"})"), "<|endoftext|> -1");
  const tok::NamedTokens named = tok::read_named_tokens(
      reader({{"tokenizer.json", R"({"model": {}, "padding": {"pad_token": "[PAD]"}})"}}));
  EXPECT_EQ(named.pad, "[PAD]");
}

}  // namespace
}  // namespace tok_test
