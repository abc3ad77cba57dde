// SPDX-License-Identifier: MIT
// Tests of the rules of one document on the null tokenizer, whose ids are the words themselves, and
// of sentences. Whole datasets against Megatron's writer: tests/tools/bpe-tokenize-goldens.sh.
#include "tools/tokenize/encode_documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <string_view>

namespace tokenize {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Made {
  std::vector<int32_t> ids;
  std::vector<int32_t> lengths;
  std::vector<int32_t> sequences;
  std::vector<std::pair<int64_t, int64_t>> runs;
  std::vector<std::byte> bytes;
  size_t most_held = 0;  ///< most bytes passed on at once
  int64_t refused = 0;
};

using Texts = std::vector<std::vector<std::string_view>>;

/// Encodes documents of one key; their lines are given, or 0, 1, 2, ...
Made encode(EncodeRules rules, const Texts& documents, std::vector<int64_t> lines = {},
            bool ahead = false) {
  TokenizerOptions options;
  options.type = "NullTokenizer";
  options.vocab_size = 1000;
  options.null_eod_id = 0;
  const LoadedTokenizer tokenizer = load_tokenizer(options);
  rules.dtype = indexed::DType::uint16;
  Encoder encoder(tokenizer, rules);
  EncodedChunk chunk;
  chunk.clear(1, id_width(rules));
  Made made;
  if (ahead) {
    chunk.ahead = [&](size_t, std::span<const std::byte> bytes) {
      made.bytes.insert(made.bytes.end(), bytes.begin(), bytes.end());
      made.most_held = std::max(made.most_held, bytes.size());
    };
  }
  for (size_t i = 0; i < documents.size(); ++i) {
    const Texts texts = {documents[i]};
    stream::Complaint verdict;
    encoder.add({.raw = {},
                 .texts = texts,
                 .line = lines.empty() ? static_cast<int64_t>(i) : lines[i],
                 .verdict = &verdict},
                chunk);
    made.refused += !verdict.what.empty();
  }
  encoder.finish(chunk);
  const EncodedKey& key = chunk.keys[0];
  for (size_t i = 0; i < key.ids.size(); ++i) made.ids.push_back(key.ids[i]);
  made.lengths = key.lengths;
  made.sequences = key.sequences;
  const std::span<const std::byte> rest = key.ids.bytes();
  made.bytes.insert(made.bytes.end(), rest.begin(), rest.end());
  EXPECT_EQ(made.bytes.size(), 2 * key.ids.total());
  for (const EncodedChunk::Run& run : chunk.runs) made.runs.emplace_back(run.line, run.documents);
  return made;
}

const Texts kDocuments = {{"1 2 3"}, {""}, {"4 5"}, {"6", "7 8", ""}, {"9"}, {}};

TEST(Encoder, AppendsTheEodToTheLastSequence) {
  // Megatron's own script on these documents: 1 2 3 0 | | 4 5 0 | 6 . 7 8 0 | 9 0 |
  const Made made = encode({.append_eod = true}, kDocuments);
  EXPECT_THAT(made.ids, ElementsAre(1, 2, 3, 0, 4, 5, 0, 6, 7, 8, 0, 9, 0));
  EXPECT_THAT(made.lengths, ElementsAre(4, 3, 1, 3, 2));
  EXPECT_THAT(made.sequences, ElementsAre(1, 0, 1, 2, 1, 0));
}

TEST(Encoder, EmptyDocuments) {
  const Made zero = encode({}, kDocuments);
  EXPECT_THAT(zero.lengths, ElementsAre(3, 2, 1, 2, 1));
  EXPECT_THAT(zero.sequences, ElementsAre(1, 0, 1, 2, 1, 0));
  const Made one = encode({.empty = EmptyDocument::one_sequence}, kDocuments);
  EXPECT_THAT(one.lengths, ElementsAre(3, 0, 2, 1, 2, 1, 0));
  EXPECT_THAT(one.sequences, ElementsAre(1, 1, 1, 2, 1, 1));
  const Made one_eod =
      encode({.append_eod = true, .empty = EmptyDocument::one_sequence}, kDocuments);
  EXPECT_THAT(one_eod.lengths, ElementsAre(4, 1, 3, 1, 3, 2, 1));
  const Made skip = encode({.append_eod = true, .empty = EmptyDocument::skip}, kDocuments);
  EXPECT_THAT(skip.lengths, ElementsAre(4, 3, 1, 3, 2));
  EXPECT_THAT(skip.sequences, ElementsAre(1, 1, 2, 1));
}

TEST(Encoder, RunsOfLines) {
  EXPECT_THAT(encode({}, kDocuments, {0, 1, 2, 5, 6, 9}).runs,
              ElementsAre(std::pair{0, 3}, std::pair{5, 2}, std::pair{9, 1}));
}

TEST(Encoder, RefusesWhatIsNoNumber) {
  for (const std::string_view bad : {"1 x", "1000", "1  2", "1 -2", " 1", "1\n2", "99999999999"}) {
    const Made made = encode({}, {{"1 2"}, {"3", bad, "4"}, {"5"}});
    EXPECT_THAT(made.ids, ElementsAre(1, 2, 5)) << bad;  // nothing of the refused document is left
    EXPECT_EQ(made.refused, 1) << bad;
  }
}

TEST(Encoder, HandsOverAheadWhatALongDocumentMakes) {
  std::string text;
  for (int i = 0; i < 700000; ++i) text += (i == 0 ? "" : " ") + std::to_string(i % 1000);
  const Made whole = encode({.append_eod = true}, {{text, "7"}, {"8"}});
  const Made pieces = encode({.append_eod = true}, {{text, "7"}, {"8"}}, {}, true);
  EXPECT_EQ(whole.ids.size(), 700004U);
  EXPECT_EQ(pieces.bytes, whole.bytes);
  EXPECT_EQ(pieces.lengths, whole.lengths);
  EXPECT_THAT(pieces.lengths, ElementsAre(700000, 2, 2));
  EXPECT_LT(pieces.most_held, size_t{1} << 20);
}

std::vector<std::string> sentences(std::string_view text, bool keep_space) {
  SentenceSplitter splitter("english");
  std::vector<std::string> out;
  for (int round = 0; round < 2; ++round) {  // one splitter for many texts
    out.clear();
    splitter.split(text, keep_space, [&](std::string_view one) { out.emplace_back(one); });
  }
  return out;
}

TEST(Sentences, IcuRules) {
  EXPECT_THAT(sentences("One is here. Two, é 東!  Three?\n\nFour", false),
              ElementsAre("One is here.", "Two, é 東!", "Three?", "Four"));
  EXPECT_THAT(sentences("One is here.  Two.\n", true), ElementsAre("One is here.  ", "Two.\n"));
  EXPECT_THAT(sentences("吾輩は猫である。名前はまだ無い。", false),
              ElementsAre("吾輩は猫である。", "名前はまだ無い。"));
  EXPECT_THAT(sentences(" \n\u3000", false), IsEmpty());
  EXPECT_THAT(sentences("", false), IsEmpty());
}

TEST(Sentences, WithTheirSpaceAreTheText) {
  EXPECT_THAT(sentences("One thing.\n\nTwo things.\n\n\n\nThree.", true),
              ElementsAre("One thing.\n\n", "Two things.\n\n\n\n", "Three."));
  EXPECT_THAT(sentences("\n\n \nOne.\n \n", true), ElementsAre("\n\n \nOne.\n \n"));
  EXPECT_THAT(sentences(" \n\u3000", true), ElementsAre(" \n\u3000"));
  EXPECT_THAT(sentences("", true), IsEmpty());
  constexpr std::array<std::string_view, 12> kParts = {
      "a", "Bc", ". ", "?", "\n", "\n\n", "\r\n", " ", "\t", "\u2029", "\u3000", "。"};
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    std::string text = "x";
    for (size_t i = random() % 20; i > 0; --i) text += kParts[random() % kParts.size()];
    if (random() % 2 == 0) text = "\n \n" + text;
    std::string joined;
    for (const std::string& one : sentences(text, true)) {
      joined += one;
      EXPECT_NE(one.find_first_not_of(" \t\r\n"), std::string::npos);
    }
    EXPECT_EQ(joined, text);
    EXPECT_EQ(sentences(text, true).size(), sentences(text, false).size());
  }
}

TEST(PaddedVocab, MegatronsLine) {
  TokenizerOptions options;
  EXPECT_EQ(padded_vocab_line(50257, options),
            " > padded vocab (size: 50257) with 47 dummy tokens (new size: 50304)");
  options.tensor_parallel = 2;
  EXPECT_EQ(padded_vocab_line(32001, options),
            " > padded vocab (size: 32001) with 255 dummy tokens (new size: 32256)");
}

}  // namespace
}  // namespace tokenize
