// SPDX-License-Identifier: MIT
// Ids and texts of the real sentencepiece, tokenizers, mistral_common and tiktoken: for models of
// SentencePiece, for the tokenizer.json files that are made of such, and for lists by rank; and
// what is refused. Goldens: tests/reference/make_sentencepiece_goldens.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "libtok/merge.h"
#include "libtok/sentencepiece.h"
#include "tests/tok/tok_data.h"

namespace tok_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string crc32_of(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
  }
  char hex[9];
  std::snprintf(hex, sizeof hex, "%08x", ~crc);
  return hex;
}

std::string crc32_of(const std::vector<int32_t>& ids) {
  return crc32_of({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t)});
}

const json& goldens() {
  static const json kGoldens = json::parse(read_golden("sentencepiece/cases.json"));
  return kGoldens;
}

/// A case's file, patched.
std::string file_of(const json& entry) {
  const std::string bytes = read_golden("sentencepiece/" + entry["file"].get<std::string>());
  if (!entry.contains("patch") || entry["patch"].empty()) return bytes;
  json tree = json::parse(bytes);
  tree.merge_patch(entry["patch"]);
  return tree.dump();
}

tok::TokenizerSource source_of(const json& entry) {
  tok::RankListOptions options;
  if (entry.contains("pattern")) {
    options.family = entry["pattern"] == "v1" ? tok::Family::nemotron : tok::Family::tekken;
    options.vocab_size = entry["vocab_size"];
    options.num_special_tokens = entry["special"];
  }
  return tok::read_tokenizer_file(file_of(entry), options);
}

tok::EncodeOptions options_of(const json& entry) {
  const bool parse = entry.value("parse", false);
  return {.special_tokens_in_text = parse ? tok::SpecialTokens::parse : tok::SpecialTokens::text,
          .add_special_tokens = parse};
}

class SentencePieceTest : public testing::TestWithParam<std::string> {};

TEST_P(SentencePieceTest, IdsAndTextsAreThoseOfTheLibrary) {
  const json& entry = goldens()["cases"][GetParam()];
  const tok::Tokenizer tokenizer(source_of(entry));
  tok::Scratch scratch;
  tok::TokenBuffer out;
  const json& texts = goldens()["texts"];
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string text = texts[i];
    out.clear();
    tokenizer.encode(text, scratch, out, options_of(entry));
    const std::vector<int32_t> ids(out.tokens().begin(), out.tokens().end());
    EXPECT_EQ(crc32_of(ids), entry["ids"][i].get<std::string>())
        << texts[i] << testing::PrintToString(ids);
    EXPECT_EQ(crc32_of(tokenizer.decode(ids)), entry["text"][i].get<std::string>()) << texts[i];
  }
}

TEST_P(SentencePieceTest, FastEqualsPlainAtEveryLevelAndInBatches) {
  const json& entry = goldens()["cases"][GetParam()];
  const json& texts = goldens()["texts"];
  const tok::EncodeOptions options = options_of(entry);
  for (const tok::SimdLevel level : {tok::SimdLevel::plain, tok::best_simd_level()}) {
    const tok::Tokenizer tokenizer(source_of(entry), level);
    tok::Scratch scratch(64, 16);
    tok::TextBatch batch;
    std::vector<int32_t> plain;
    tok::TokenBuffer out;
    std::span<const int32_t> counts;
    const auto encode_batch = [&] {
      tokenizer.encode(batch, scratch, out, counts, options);
      EXPECT_EQ(counts.size(), batch.size());
      batch.clear();
    };
    for (const json& text : texts) {
      const std::string_view bytes = text.get_ref<const std::string&>();
      if (bytes.empty()) continue;
      if (!batch.has_room_for(bytes)) encode_batch();
      batch.add(bytes);
      tokenizer.encode_plain(bytes, plain, options);
    }
    encode_batch();
    EXPECT_EQ(std::vector<int32_t>(out.tokens().begin(), out.tokens().end()), plain);
  }
}

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : goldens()["cases"].items()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(, SentencePieceTest, testing::ValuesIn(case_names()),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = std::isalnum(c) ? c : '_';
                           return name;
                         });

std::string complaint_of(const std::string& bytes) {
  try {
    tok::Tokenizer::from_file(bytes);
  } catch (const tok::ParseError& error) {
    return error.what();
  }
  return "no complaint";
}

/// A model's field as a protocol buffer has it.
std::string field(int number, std::string_view bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())}.append(
      bytes);
}
std::string number_field(int number, int value) {
  std::string key;
  if (number < 16) {
    key = {static_cast<char>(number << 3)};
  } else {
    key = {static_cast<char>((number << 3 & 127) | 128), static_cast<char>(number >> 4)};
  }
  return key + static_cast<char>(value);
}
std::string piece(std::string_view text, int type, float score = 0) {
  std::string bytes(sizeof score, '\0');
  std::memcpy(bytes.data(), &score, sizeof score);
  return field(1, field(1, text) + "\x15" + bytes + number_field(3, type));
}
std::string byte_pieces() {
  std::string pieces;
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
    pieces += piece(name, 6);
  }
  return pieces;
}
const std::string kBpe = field(2, number_field(3, 2));
const std::string kUnk = piece("<unk>", 2);

TEST(SentencePieceModel, IsToldFromJsonWhateverItBeginsWith) {
  for (const char* name : {"llama.model", "gemma.model", "nfkc.model"}) {
    EXPECT_TRUE(tok::is_sentencepiece(read_golden(std::string("sentencepiece/") + name))) << name;
  }
  EXPECT_TRUE(tok::is_sentencepiece(kUnk + kBpe));
  EXPECT_TRUE(tok::is_sentencepiece(piece(std::string(100, 'a'), 1)));
  EXPECT_TRUE(tok::is_sentencepiece(field(1, field(1, "a"))));
  const std::string json = golden_cases().dump(1);
  for (const char* before : {"", "\n", "\n\n", "\n\n\n", "\n \n", "\n{\n"}) {
    EXPECT_FALSE(tok::is_sentencepiece(before + json));
  }
  EXPECT_FALSE(tok::is_sentencepiece(""));
  EXPECT_FALSE(tok::is_sentencepiece("\n"));
  EXPECT_FALSE(tok::is_sentencepiece(std::string("\n\0\n\0", 4)));
}

TEST(SentencePieceModel, AnotherTypeIsNamed) {
  EXPECT_THAT(complaint_of(kUnk + piece("a", 1)), HasSubstr("model_type: UNIGRAM: only BPE"));
  EXPECT_THAT(complaint_of(kUnk + field(2, number_field(3, 4))), HasSubstr("model_type: CHAR"));
}

TEST(SentencePieceModel, WhatCannotBeFollowedIsRefusedByName) {
  EXPECT_THAT(complaint_of(kUnk + piece("a", 1) + piece("ab", 1) + kBpe),
              HasSubstr("piece \"ab\": one of its characters is no piece"));
  EXPECT_THAT(complaint_of(kUnk + piece("ab", 5) + kBpe), HasSubstr("piece 1: type UNUSED"));
  EXPECT_THAT(complaint_of(kUnk + piece("a", 1) + piece("a", 1) + kBpe), HasSubstr("listed twice"));
  EXPECT_THAT(complaint_of(kUnk + piece("a", 3) + kBpe),
              HasSubstr("piece \"a\": a character that"));
  EXPECT_THAT(complaint_of(kUnk + piece("<0x0A>", 6) + kBpe), HasSubstr("byte_fallback is false"));
  EXPECT_THAT(
      complaint_of(kUnk + piece("<0x0A>", 6) + field(2, number_field(3, 2) + number_field(35, 1))),
      HasSubstr("there are not 256 pieces"));
  EXPECT_THAT(complaint_of(kUnk + piece("\xFF", 1) + kBpe), HasSubstr("piece 1: it is not UTF-8"));
  EXPECT_THAT(complaint_of(kUnk + kBpe + field(3, number_field(5, 0))),
              HasSubstr("escape_whitespaces: false"));
  EXPECT_THAT(complaint_of(kUnk + field(2, number_field(3, 2) + number_field(24, 1))),
              HasSubstr("treat_whitespace_as_suffix: true"));
  EXPECT_THAT(complaint_of(kUnk + kBpe + field(3, field(2, "\x08xxx"))),
              HasSubstr("precompiled_charsmap: its sizes contradict each other"));
}

TEST(SentencePieceModel, EqualScoresMergeFromLeftToRight) {
  const std::string model = kUnk + piece("a", 1, -3) + piece("b", 1, -3) +
                            piece("\xE2\x96\x81", 1, -3) + piece("ab", 1, -1) + piece("ba", 1, -1) +
                            kBpe + field(3, number_field(3, 0) + number_field(4, 0));
  const tok::Tokenizer tokenizer = tok::Tokenizer::from_sentencepiece(model);
  EXPECT_EQ(tokenizer.encode("bab"), (std::vector<int32_t>{5, 2}));
  EXPECT_EQ(tokenizer.encode("aba"), (std::vector<int32_t>{4, 1}));
}

// A denormalizer changes decoded texts, which is said; a name alone does nothing, nor does another
// message with such a field.
TEST(SentencePieceModel, ADenormalizerIsNoted) {
  const auto notes = [](const std::string& more) {
    const std::string trainer = field(2, number_field(3, 2) + field(2, "prefix"));
    return tok::read_sentencepiece(kUnk + piece("a", 1) + trainer + more).notes;
  };
  EXPECT_THAT(notes(field(5, field(2, "map"))), testing::Contains(HasSubstr("denormalizer")));
  for (const std::string& other :
       {std::string(), field(5, field(1, "nmt")), field(5, field(2, "")), field(4, field(2, "x"))})
    EXPECT_THAT(notes(other), testing::Not(testing::Contains(HasSubstr("denormalizer"))));
}

TEST(SentencePieceModel, EveryTruncationIsRefusedOrReads) {
  const std::string whole = read_golden("sentencepiece/nfkc_cf.model");
  for (size_t size = 4; size < whole.size(); size += size < 400 ? 1 : 97) {
    try {
      tok::Tokenizer::from_sentencepiece(std::string_view(whole).substr(0, size)).encode("a b c");
    } catch (const tok::ParseError&) {
    }
  }
}

/// The ids are those of transformers 4.46.3 and 5.23.0.
TEST(SentencePieceModel, AFolderMergesByScoreAsIn446OrByIdAsIn5) {
  std::string model = kUnk + piece("<s>", 3) + piece("</s>", 3);
  float score = -10;
  for (const char* text : {"a", "b", "c", "\u2581"}) model += piece(text, 1, score--);
  model += piece("ab", 1, -2) + piece("bc", 1, -1) + kBpe;
  const auto folder = [&](const std::string& name) {
    return tok::read_folder([=](std::string_view file) -> std::optional<std::string> {
      if (file == "tokenizer.model") return model;
      if (file != "tokenizer_config.json") return std::nullopt;
      return json{{"tokenizer_class", name}, {"legacy", false}}.dump();
    });
  };
  EXPECT_EQ(tok::Tokenizer(folder("LlamaTokenizer")).encode("abc"),
            (std::vector<int32_t>{6, 3, 8}));
  EXPECT_THAT(folder("LlamaTokenizer").version_note, HasSubstr("in the order of ids"));
  EXPECT_EQ(tok::Tokenizer(folder("PreTrainedTokenizerFast")).encode("abc"),
            (std::vector<int32_t>{7, 5}));
}

TEST(SentencePieceModel, MegatronsTokensGetTheNextIds) {
  const std::string model = read_golden("sentencepiece/llama.model");
  const tok::Tokenizer tokenizer =
      tok::Tokenizer::from_sentencepiece(model, {.megatron_tokens = true});
  const int64_t pieces = tokenizer.base_vocab_size();
  EXPECT_EQ(tokenizer.token_id("<CLS>"), pieces);
  EXPECT_EQ(tokenizer.eod_id(), tokenizer.token_id("<EOD>"));
  EXPECT_EQ(tokenizer.token_id("<s>"), 1);
  EXPECT_EQ(tokenizer.token_id("<PAD>"), pieces + 4);
  EXPECT_EQ(tokenizer.vocab_size(), pieces + 5);
}

/// Megatron's wrapper looks in a text for its own tokens, and the model's bos, eos and pad.
TEST(SentencePieceModel, MegatronParsesNoOtherControlSymbols) {
  std::string model = kUnk + piece("<s>", 3) + piece("</s>", 3) + piece("<c>", 3);
  float score = 0;
  for (const char* text : {"<", ">", "c", "s", "\xE2\x96\x81", "<c"})
    model += piece(text, 1, --score);
  model += kBpe + field(3, number_field(3, 0) + number_field(4, 0));
  const tok::EncodeOptions parse{.special_tokens_in_text = tok::SpecialTokens::parse};
  const tok::Tokenizer own = tok::Tokenizer::from_sentencepiece(model);
  const tok::Tokenizer megatron = tok::Tokenizer::from_sentencepiece(model, {true});
  EXPECT_EQ(own.encode("<c><s>", parse), (std::vector<int32_t>{3, 1}));
  EXPECT_EQ(megatron.encode("<c><s>", parse), (std::vector<int32_t>{9, 5, 1}));
  EXPECT_EQ(megatron.encode("<c><EOD>", parse), (std::vector<int32_t>{9, 5, 12}));
  EXPECT_EQ(megatron.decode(std::vector<int32_t>{3, 6, 1}), "c");
  EXPECT_EQ(megatron.vocab_size(), 10 + 4 + 1);  // with <PAD>
}

TEST(SentencePieceModel, TokensAreWholeInTheMidstOfATextAndIdentitiesDiffer) {
  const tok::Tokenizer model =
      tok::Tokenizer::from_sentencepiece(read_golden("sentencepiece/llama.model"));
  const tok::Tokenizer other =
      tok::Tokenizer::from_sentencepiece(read_golden("sentencepiece/inner_blanks.model"));
  const std::vector<int32_t> ids = model.encode("the the");
  ASSERT_EQ(ids.size(), 2u);
  EXPECT_EQ(model.token_bytes(ids[0]), " the");
  EXPECT_EQ(model.decode(ids), "the the");
  EXPECT_EQ(model.token_bytes(3 + 0x0A), "\n");
  EXPECT_NE(model.identity(), other.identity());
}

/// Windows end at characters, and overlap as those of bytes do.
TEST(SentencePieceModel, LongPiecesAreMergedInWindows) {
  std::string model = kUnk;
  float score = 0;
  for (const char* text :
       {"aa", "a\u00e9", "\u00e9\u00e9a", "\u00e9\u00e9", "aaa\u00e9", "aaaa", "a", "\u00e9"}) {
    model += piece(text, 1, score -= 1);
  }
  model += byte_pieces() + field(2, number_field(3, 2) + number_field(35, 1));
  const tok::Vocab vocab(tok::read_sentencepiece(model).vocab);
  Random random(5);
  std::string text;
  while (text.size() < 30000) text += random.next(2) == 0 ? "a" : "\u00e9";
  tok::MergeScratch scratch;
  for (const size_t window : {512, 701, 2000}) {
    tok::TokenBuffer out;
    ASSERT_TRUE(tok::merge_windows(vocab, text, window, scratch, out));
    std::vector<int32_t> whole(text.size());
    whole.resize(tok::merge_piece(vocab, text, scratch, whole.data()));
    EXPECT_EQ(std::vector<int32_t>(out.tokens().begin(), out.tokens().end()), whole) << window;
  }
}

json gemma_json() { return json::parse(read_golden("sentencepiece/gemma.json")); }

/// Ids and texts by sentencepiece 0.2 and tokenizers 0.23.
TEST(SentencePieceModel, ABlankWithoutAPieceIsTheBytesOfItsMark) {
  const std::string model = kUnk + piece("a", 1, -1) + piece("b", 1, -2) + piece("ab", 1, -3) +
                            byte_pieces() + field(2, number_field(3, 2) + number_field(35, 1)) +
                            field(3, number_field(4, 0));
  const std::vector<int32_t> prefixed = {230, 154, 133, 1, 230, 154, 133, 2};
  const tok::Tokenizer own = tok::Tokenizer::from_sentencepiece(model);
  EXPECT_EQ(own.encode("a b"), prefixed);
  EXPECT_EQ(own.decode(prefixed), "\u2581a\u2581b");
  EXPECT_EQ(own.encode("ab\u2581"), (std::vector<int32_t>{230, 154, 133, 3, 230, 154, 133}));
  json tree = gemma_json();
  json vocab = json::object();
  for (const std::string& text : tok::read_sentencepiece_pieces(model)) vocab[text] = vocab.size();
  tree["added_tokens"] = json::array();
  tree["post_processor"] = nullptr;
  tree["model"]["vocab"] = vocab;
  tree["model"]["merges"] = {"a b"};
  const auto encode = [&](const std::string& text) {
    const tok::Tokenizer tokenizer = tok::Tokenizer::from_file(tree.dump());
    tok::TextBatch batch;
    batch.add(text);
    tok::Scratch scratch(64, 16);
    tok::TokenBuffer out;
    std::span<const int32_t> counts;
    tokenizer.encode(batch, scratch, out, counts);
    return std::vector<int32_t>(out.tokens().begin(), out.tokens().end());
  };
  EXPECT_EQ(encode("a b"), (std::vector<int32_t>{1, 230, 154, 133, 2}));
  tree["normalizer"] = nullptr;
  tree["pre_tokenizer"] = {{"type", "Metaspace"},
                           {"replacement", "\u2581"},
                           {"prepend_scheme", "always"},
                           {"split", true}};
  EXPECT_EQ(encode("a b"), prefixed);
  tree["model"]["ignore_merges"] = true;
  EXPECT_THAT(complaint_of(tree.dump()), HasSubstr("not supported where U+2581 has no token"));
}

TEST(TokenizerJsonOfText, WhatCannotBeFollowedIsRefusedByName) {
  const auto complaint_with = [](const json& patch) {
    json tree = gemma_json();
    tree.merge_patch(patch);
    return complaint_of(tree.dump());
  };
  EXPECT_THAT(complaint_with({{"model", {{"vocab", {{"<0x41>", nullptr}}}}}}),
              HasSubstr("model.byte_fallback: true: <0x41> has no token"));
  EXPECT_THAT(complaint_with({{"model", {{"byte_fallback", false}, {"unk_token", nullptr}}}}),
              HasSubstr("model.unk_token: null: characters without a token would be lost"));
  EXPECT_THAT(complaint_with({{"normalizer", nullptr}}),
              HasSubstr("only behind a normalizer that replaces blanks"));
  EXPECT_THAT(complaint_with({{"normalizer", {{"type", "Replace"}, {"content", "x"}}}}),
              HasSubstr("normalizer.Replace: \"x\""));
  EXPECT_THAT(complaint_with({{"normalizer", {{"type", "Lowercase"}}}}),
              HasSubstr("normalizer: Lowercase"));
  EXPECT_THAT(complaint_with({{"pre_tokenizer", {{"type", "Whitespace"}}}}),
              HasSubstr("pre_tokenizer: Whitespace: without a ByteLevel step"));
  EXPECT_THAT(complaint_with({{"model", {{"type", "Unigram"}}}}),
              HasSubstr("model.type: \"Unigram\": only BPE is supported"));
  json merges = gemma_json()["model"]["merges"];
  merges.push_back({"<0x41>", "a"});
  EXPECT_THAT(complaint_with({{"model", {{"merges", merges}, {"vocab", {{"<0x41>a", 99999}}}}}}),
              HasSubstr("stands for characters without a token, which must not merge"));
}

TEST(RankList, WhatCannotBeFollowedIsRefusedByName) {
  const auto complaint_with = [](const json& patch) {
    json tree = json::parse(read_golden("sentencepiece/tekken.json"));
    tree.merge_patch(patch);
    return complaint_of(tree.dump());
  };
  EXPECT_THAT(complaint_with({{"config", {{"pattern", "x"}}}}), HasSubstr("config.pattern: \"x\""));
  EXPECT_THAT(complaint_with({{"config", {{"default_vocab_size", 1 << 20}}}}),
              HasSubstr("the file has only"));
  EXPECT_THAT(complaint_with({{"config", {{"default_num_special_tokens", 1 << 20}}}}),
              HasSubstr("more than 65536"));
  EXPECT_THAT(complaint_with({{"special_tokens", nullptr}}), HasSubstr("config.version: \"v11\""));
  EXPECT_THAT(complaint_of(R"([{"rank": 1, "token_bytes": "AA==", "token_str": null}])"),
              HasSubstr("token 0: 1: expected its number as its rank"));
  EXPECT_THAT(complaint_of(R"([{"rank": 0, "token_bytes": "A", "token_str": null}])"),
              HasSubstr("token_bytes is not base64"));
  EXPECT_THAT(complaint_of(R"([{"rank": 0, "token_bytes": "AQ==", "token_str": null}])"),
              HasSubstr("the first 256 tokens are the bytes"));
}

TEST(Charsmap, FollowsNothingOutOfItsBytes) {
  std::string blob("\x08\0\0\0", 4);
  blob += std::string("\xFF\xFF\xFF\x7F\xFF\xFF\xFF\x7F", 8) + std::string("a\0", 2);
  const tok::Charsmap map(blob);
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text(3, static_cast<char>(byte));
    EXPECT_LE(map.find(text, 0).size, text.size());
  }
}

}  // namespace
}  // namespace tok_test
