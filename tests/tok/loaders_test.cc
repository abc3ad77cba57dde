// Loading: everything that must be refused, with its message, and everything that is accepted in
// more than one form.
// SPDX-License-Identifier: MIT
#include "libtok/loaders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "libtok/byte_level.h"
#include "libtok/tokenizer.h"
#include "tests/tok/tok_data.h"

namespace tok_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

/// The message of the ParseError that loading `text` throws; empty when it loads.
std::string refusal(const std::string& text) {
  try {
    tok::Tokenizer::from_tokenizer_json(text);
  } catch (const tok::ParseError& error) {
    return error.what();
  }
  return "";
}

json base() {
  json root = json::parse(read_golden("base.json"));
  root["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  return root;
}

/// The message when base.json has `value` at a JSON pointer.
std::string refusal_with(const char* pointer, const json& value) {
  json root = base();
  root[json::json_pointer(pointer)] = value;
  return refusal(root.dump());
}

TEST(TokenizerJsonTest, TheBaseLoads) { EXPECT_EQ(refusal(base().dump()), ""); }

TEST(TokenizerJsonTest, RefusesByNameWhatItCannotFollow) {
  struct Row {
    const char* pointer;
    json value;
    const char* words;
  };
  const Row rows[] = {
      {"/normalizer", {{"type", "Lowercase"}}, "normalizer: Lowercase: "},
      {"/normalizer",
       {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Strip"}}}}},
       "normalizer: Strip: "},
      {"/normalizer", {{"type", "Replace"}}, "normalizer.Replace: null: only a blank"},
      {"/normalizer", "NFC", "normalizer: \"NFC\": expected an object"},
      {"/pre_tokenizer", nullptr, "model.unk_token: null: characters without a token"},
      {"/pre_tokenizer", {{"type", "Whitespace"}}, "pre_tokenizer: Whitespace: "},
      {"/pre_tokenizer", {{"type", "Metaspace"}}, "pre_tokenizer.Metaspace.replacement: null: "},
      {"/pre_tokenizer",
       {{"type", "Digits"}, {"individual_digits", true}},
       "model.unk_token: null: characters without a token"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "\\s+"}}}, {"behavior", "Isolated"}},
       "pre_tokenizer.Split: \"\\\\s+\": not one of the supported patterns"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "Isolated"}},
       "only behind a normalizer that replaces blanks"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "\\p{N}{1,3}"}}}, {"behavior", "Contiguous"}},
       "\"Contiguous\": only behavior Isolated"},
      {"/pre_tokenizer",
       {{"type", "Split"},
        {"pattern", {{"Regex", "\\p{N}{1,3}"}}},
        {"behavior", "Removed"},
        {"invert", true}},
       "\"Removed\": only behavior Isolated"},
      {"/pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", {{{"type", "ByteLevel"}}, {{"type", "Digits"}}}}},
       "pre_tokenizer: Digits: a step after ByteLevel"},
      {"/pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Digits"}}, {{"type", "ByteLevel"}}}}},
       "add_prefix_space: true: after another splitting step"},
      {"/pre_tokenizer/add_prefix_space", "yes",
       "add_prefix_space: \"yes\": expected true or false"},
      {"/model/type", "Unigram", "model.type: \"Unigram\": only BPE"},
      {"/model/type", "WordPiece", "model.type: \"WordPiece\": only BPE"},
      {"/model/dropout", 0.1, "model.dropout: 0.1: "},
      {"/model/continuing_subword_prefix", "##", "model.continuing_subword_prefix: \"##\": "},
      {"/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix: \"</w>\": "},
      {"/model/merges", "a b", "model.merges: \"a b\": expected an array"},
      {"/model/merges/3", "abc", "model.merges[3]: \"abc\": expected two tokens and one space"},
      {"/model/merges/3", "a b c", "model.merges[3]: \"a b c\": expected two tokens"},
      {"/model/merges/3", {"a", "b", "c"}, "expected a string or a pair of strings"},
      {"/model/merges/3", {"a", "\u6f22"}, "outside the byte-level alphabet"},
      {"/model/merges/3", "qqqq qqqq", "\"qqqq\" is not in the vocabulary"},
      {"/model/vocab/a", -1, "token \"a\": id -1 is not an integer in 0.."},
      {"/model/vocab/a", "x", "token \"a\": id \"x\" is not an integer"},
      {"/model/vocab/a", 1.5, "token \"a\": id 1.5 is not an integer"},
      {"/model/vocab/a", 300, "id 300: tokens "},
      {"/model/vocab/a", 200000000, "largest id 200000000: only "},
      {"/model/vocab", json::array(), "model.vocab: the vocabulary is not an object"},
      {"/post_processor", {{"type", "Unknown"}}, "post_processor: Unknown: "},
      {"/post_processor",
       {{"type", "TemplateProcessing"}, {"single", json::array()}},
       "the text must stand in it once"},
      {"/post_processor",
       {{"type", "RobertaProcessing"}, {"cls", {"<s>", 900000}}, {"sep", {"</s>", 2}}},
       "post_processor: id 900000: no such token"},
      {"/added_tokens",
       {{{"id", 5000}, {"content", "<x>"}}},
       "\"<x>\": its id is 5000, Hugging Face"},
      {"/added_tokens", {{{"id", 2999}, {"content", 5}}}, "content is not a string"},
      {"/added_tokens",
       {{{"id", 3000}, {"content", "<x>"}}, {{"id", 3001}, {"content", "<x>"}}},
       "\"<x>\": listed twice"},
      {"/model", json::array(), "model: []: expected an object"},
  };
  for (const Row& row : rows) {
    EXPECT_THAT(refusal_with(row.pointer, row.value), HasSubstr(row.words))
        << row.pointer << " = " << row.value;
  }
}

json split(const char* pattern, const char* behavior, bool invert) {
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"},
             {"pattern", {{"Regex", pattern}}},
             {"behavior", behavior},
             {"invert", invert}},
            {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
}

TEST(TokenizerJsonTest, ReadsThePatternOfTiktokenAsOnigurumaDoes) {
  json root = base();
  root["pre_tokenizer"] = split(R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+)"
                                R"(| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)",
                                "Isolated", false);
  EXPECT_EQ(tok::Tokenizer::from_tokenizer_json(root.dump()).source().pretokenizer,
            tok::make_pretokenizer(tok::Family::cl100k_runs));
}

TEST(TokenizerJsonTest, RemovesOnlyGapsThatThereAreNone) {
  const char* covers =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+)"
      R"([\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  EXPECT_EQ(refusal_with("/pre_tokenizer", split(covers, "Removed", true)), "");
  EXPECT_THAT(refusal_with("/pre_tokenizer", split(covers, "Removed", false)),
              HasSubstr("\"Removed\": only behavior Isolated"));
  const char* deepseek =
      R"~([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\)~"
      R"~(p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)~";
  EXPECT_EQ(refusal_with("/pre_tokenizer", split(deepseek, "Isolated", false)), "");
  EXPECT_THAT(refusal_with("/pre_tokenizer", split(deepseek, "Removed", true)),
              HasSubstr("\"Removed\": only behavior Isolated"));
}

// Seen with tokenizers 0.22.2 and 0.23.3; 0.20.3 puts <b> behind <a>.
TEST(TokenizerJsonTest, ATokenOfTheVocabularyDoesNotMoveTheIdsBehindIt) {
  json root = base();
  const int32_t size = static_cast<int32_t>(root["model"]["vocab"].size());
  root["model"]["vocab"]["<a>"] = size + 10;  // one token more: <b> is number size + 1
  const auto refusal_of = [&](int32_t id_of_b) {
    root["added_tokens"] = {{{"id", size + 10}, {"content", "<a>"}, {"special", true}},
                            {{"id", id_of_b}, {"content", "<b>"}, {"special", true}},
                            {{"id", size + 2}, {"content", "<c>"}}};
    return refusal(root.dump());
  };
  EXPECT_EQ(refusal_of(size + 1), "");
  EXPECT_EQ(refusal_of(size + 11), "tokenizer.json: added_tokens: \"<b>\": its id is " +
                                       std::to_string(size + 11) + ", Hugging Face would give it " +
                                       std::to_string(size + 1));
}

TEST(TokenizerJsonTest, RefusesByteFallbackOnlyWhereBytesAreMissing) {
  EXPECT_EQ(refusal_with("/model/byte_fallback", true), "");
  json root = base();
  root["model"]["vocab"].erase("a");
  root["model"]["merges"] = json::array();
  root["model"]["byte_fallback"] = true;
  EXPECT_THAT(refusal(root.dump()), HasSubstr("model.byte_fallback: true: 1 bytes have no token"));
  root["model"]["byte_fallback"] = false;
  root["model"]["unk_token"] = "<nothing>";
  EXPECT_THAT(refusal(root.dump()), HasSubstr("model.unk_token: \"<nothing>\": not in"));
}

TEST(TokenizerJsonTest, RefusesWhatIsNotJson) {
  EXPECT_THAT(refusal(""), HasSubstr("tokenizer.json: byte 1: not valid JSON"));
  EXPECT_THAT(refusal("{\"model\": "), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal("{}"), HasSubstr("model: null: expected an object"));
  EXPECT_THAT(refusal(std::string(100000, '[')), HasSubstr("nested deeper than"));
  EXPECT_THAT(refusal("{\"model\": \"\xff\"}"), HasSubstr("not valid JSON"));
}

TEST(TokenizerJsonTest, EveryTruncationIsRefused) {
  const std::string text = base().dump();
  for (size_t size = 0; size < text.size(); size += 1 + size / 10) {
    EXPECT_NE(refusal(text.substr(0, size)), "") << size;
  }
}

TEST(TokenizerJsonTest, NamesTheBadTokenOrMerge) {
  json root = base();
  root["model"]["vocab"]["q"] = 1.5;
  EXPECT_THAT(refusal(root.dump()),
              HasSubstr("model.vocab: token \"q\": id 1.5 is not an integer"));
  root["model"]["vocab"]["q"] = json::array({1});
  EXPECT_THAT(refusal(root.dump()), HasSubstr("model.vocab: token \"q\": id "));
  root["model"]["vocab"]["q"] = -1;
  EXPECT_THAT(refusal(root.dump()), HasSubstr("model.vocab: token \"q\": id -1 is not"));
  root["model"]["vocab"] = 7;
  EXPECT_THAT(refusal(root.dump()), HasSubstr("model.vocab: "));
  for (const json& merge : {json("a"), json("a b c"), json({"a"}), json({"a", "b", "c"}),
                            json({"a", 1}), json(5), json::object(), json("a \u4e2d")}) {
    root = base();
    root["model"]["merges"].push_back(merge);
    const std::string place =
        "model.merges[" + std::to_string(root["model"]["merges"].size() - 1) + "]: ";
    EXPECT_THAT(refusal(root.dump()), HasSubstr(place)) << merge;
  }
}

TEST(TokenizerJsonTest, OfEqualKeysTheLastCounts) {
  std::string text = base().dump();
  const std::string id_of_a = "\"a\":" + base()["model"]["vocab"]["a"].dump();
  const size_t at = text.find(id_of_a);
  ASSERT_NE(at, std::string::npos);
  text.insert(at, "\"a\":77,");
  EXPECT_EQ(refusal(text), refusal(base().dump()));
  // A second vocabulary replaces the first one entirely.
  std::string twice = base().dump();
  twice.insert(twice.find("\"merges\""), "\"vocab\":{\"z\":0},\"merges\":[\"no such\"],");
  EXPECT_EQ(refusal(twice), refusal(base().dump()));
  // Members of these names elsewhere are no vocabulary.
  json root = base();
  root["other"] = {{"vocab", {{"a", "x"}}}, {"merges", {1, 2}}};
  EXPECT_EQ(refusal(root.dump()), refusal(base().dump()));
}

/// The message of the ParseError for a pair of GPT-2's files; empty when they load.
std::string files_refusal(const std::string& vocab, const std::string& merges) {
  try {
    tok::Tokenizer::from_gpt2(vocab, merges);
  } catch (const tok::ParseError& error) {
    return error.what();
  }
  return "";
}

TEST(Gpt2FilesTest, ReadsAndRefuses) {
  const std::string vocab = R"({"a":0,"b":1,"ab":2,"abab":3,"<s>":4})";
  EXPECT_EQ(files_refusal(vocab, "#version: 0.2\na b\nab ab\n"), "");
  EXPECT_EQ(files_refusal(vocab, "#version: 0.2\r\na b\r\nab ab\r\n"), "");
  EXPECT_EQ(files_refusal(vocab, "a b"), "");
  EXPECT_THAT(files_refusal(vocab, "a b\nab\n"), HasSubstr("merges.txt:2: \"ab\": expected two"));
  EXPECT_THAT(files_refusal(vocab, "a  b\n"), HasSubstr("merges.txt:1: "));
  EXPECT_THAT(files_refusal(vocab, "a b\n\nab ab\n"), HasSubstr("merges.txt:2: \"\""));
  EXPECT_THAT(files_refusal(vocab, "a b\nb a\n"), HasSubstr("\"ba\" is not in the vocabulary"));
  EXPECT_THAT(files_refusal("{\"a\":0", "a b\n"), HasSubstr("vocab.json: byte "));
  EXPECT_THAT(files_refusal("{\"a\":0,\"b\":0}", ""), HasSubstr("id 0: tokens \"a\" and \"b\""));
}

// A merge whose token is missing is a mistake of merges.txt, and its line is named, whatever stands
// between the merges.
TEST(Gpt2FilesTest, NamesTheLineOfAMergeWithoutAToken) {
  const std::string vocab = R"({"a":0,"b":1,"ab":2})", version = "#version: 0.2\n";
  const char* missing = "\"b\" \"a\": \"ba\" is not in the vocabulary";
  EXPECT_EQ(files_refusal(vocab, "b a\n"), std::string("merges.txt:1: ") + missing);
  EXPECT_EQ(files_refusal(vocab, "a b\nb a\n"), std::string("merges.txt:2: ") + missing);
  EXPECT_EQ(files_refusal(vocab, version + "b a\n"), std::string("merges.txt:2: ") + missing);
  EXPECT_EQ(files_refusal(vocab, version + "a b\n" + version + version + "b a\n" + version),
            std::string("merges.txt:5: ") + missing);
  EXPECT_EQ(files_refusal(vocab, version + "a c\n"),
            "merges.txt:2: \"a\" \"c\": \"c\" is not in the vocabulary");
}

TEST(Gpt2FilesTest, ComplaintsNameTheUsersFiles) {
  const auto named = [](const char* complaint) { return tok::with_paths(complaint, "v", "m"); };
  EXPECT_EQ(named("merges.txt:3: x"), "m:3: x");
  EXPECT_EQ(named("vocab.json: byte 4"), "v: byte 4");
  EXPECT_EQ(named("vocabulary: id 0"), "v: vocabulary: id 0");
}

TEST(Gpt2FilesTest, SpecialTokensGetTheNextIds) {
  const tok::Tokenizer tokenizer = tok::Tokenizer::from_gpt2(
      R"({"a":0,"b":1,"ab":2})", "a b\n", {.special_tokens = {"<x>", "ab", "<y>"}});
  EXPECT_EQ(tokenizer.token_id("<x>"), 3);
  EXPECT_EQ(tokenizer.token_id("ab"), 2);
  EXPECT_EQ(tokenizer.token_id("<y>"), 4);
  EXPECT_EQ(tokenizer.vocab_size(), 5);
  EXPECT_THAT(tokenizer.audit(), HasSubstr("merges.txt has no #version line"));
}

/// The message of the ParseError for a .tiktoken file; empty when it loads.
std::string tiktoken_refusal(const std::string& ranks, const char* encoding = "cl100k_base") {
  try {
    tok::Tokenizer::from_tiktoken(ranks, encoding);
  } catch (const tok::ParseError& error) {
    return error.what();
  }
  return "";
}

/// Added tokens have the ids behind the vocabulary's, whatever its size.
TEST(Gpt2FilesTest, SpecialTokensFollowVocabulariesOfAnySize) {
  for (const int size : {1, 2, 3}) {
    std::string vocab = "{";
    for (int i = 0; i < size; ++i)
      vocab += (i > 0 ? ",\"" : "\"") + std::string(1, static_cast<char>('a' + i)) +
               "\":" + std::to_string(i);
    const tok::Tokenizer tokenizer =
        tok::Tokenizer::from_gpt2(vocab + "}", "", {.special_tokens = {"<x>", "<y>"}});
    EXPECT_EQ(tokenizer.token_id("<x>"), size) << size;
    EXPECT_EQ(tokenizer.token_id("<y>"), size + 1) << size;
    EXPECT_THAT(tokenizer.audit(), HasSubstr("largest id " + std::to_string(size + 1)));
  }
}

TEST(TiktokenTest, Refuses) {
  EXPECT_THAT(tiktoken_refusal("IQ== 0\n"), HasSubstr("has no token, and tiktoken needs all 256"));
  EXPECT_THAT(tiktoken_refusal("IQ== 0\nIQ= 1\n"), HasSubstr("tiktoken file:2: "));
  EXPECT_THAT(tiktoken_refusal("IQ==\n"), HasSubstr("tiktoken file:1: "));
  EXPECT_THAT(tiktoken_refusal("IQ== x\n"), HasSubstr("tiktoken file:1: "));
  EXPECT_THAT(tiktoken_refusal("IQ== 0 0\n"), HasSubstr("tiktoken file:1: "));
  EXPECT_THAT(tiktoken_refusal("IR== 0\n"), HasSubstr("tiktoken file:1: "));
  EXPECT_THAT(tiktoken_refusal("IQ== 0\nIQ== 1\n"), HasSubstr("listed with ids 0 and 1"));
  EXPECT_THAT(tiktoken_refusal("IQ== 0\n", "gpt5"),
              HasSubstr("encoding \"gpt5\": known are gpt2,"));
}

TEST(ByteLevelTest, BothWays) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const std::string text = tok::byte_level_of_bytes(all);
  EXPECT_EQ(tok::bytes_of_byte_level(text), all);
  EXPECT_EQ(tok::byte_level_of_bytes(" \n"), "ĠĊ");
  EXPECT_EQ(tok::bytes_of_byte_level(" "), std::nullopt);
  EXPECT_EQ(tok::bytes_of_byte_level("\u0144"), std::nullopt);
  EXPECT_EQ(tok::bytes_of_byte_level("\xff"), std::nullopt);
}

}  // namespace
}  // namespace tok_test
