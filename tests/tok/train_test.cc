// SPDX-License-Identifier: MIT
// Vocabulary training against Hugging Face's trainer, by digests of what it learns from texts that
// both can generate, and properties that hold for every text.
#include "libtok/train.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "libtok/digest.h"
#include "libtok/pretokenize.h"
#include "tests/tok/tok_data.h"

namespace tok_test {
namespace {

using nlohmann::json;

tok::PieceCounts count_pieces(const std::vector<std::string>& texts) {
  tok::PieceCounts counts;
  for (const std::string& text : texts) {
    tok::PieceCutter cutter(tok::make_pretokenizer(tok::Family::gpt2), text);
    for (std::string_view piece = cutter.next(); !piece.empty(); piece = cutter.next()) {
      counts.add(piece);
    }
  }
  return counts;
}

class TrainGoldenTest : public testing::TestWithParam<size_t> {};

const json& train_goldens() {
  static const json kGoldens = json::parse(read_golden("train.json"));
  return kGoldens;
}

TEST_P(TrainGoldenTest, LearnsWhatTheReferenceLearns) {
  const json& row = train_goldens()["rows"][GetParam()];
  std::vector<std::string> texts;
  if (row["text"] == "random") {
    texts = random_texts(row["seed"], row["count"]);
  } else if (row["text"] == "tool") {
    for (int i = 1; i <= row["count"].get<int>(); ++i) {
      texts.push_back("Line " + std::to_string(i) + ": the quick brown fox " +
                      std::to_string(i * i % 997) + " jumps over caf\u00e9; don't!");
    }
  } else {
    std::optional<std::string> text = read_shared(row["text"]);
    if (!text.has_value()) GTEST_SKIP() << "the sample data is not on this machine";
    texts.push_back(*std::move(text));
  }
  const tok::PieceCounts counts = count_pieces(texts);
  const tok::TrainedBpe bpe =
      tok::train_bpe(counts.sorted(), {.vocab_size = row["vocab_size"],
                                       .min_frequency = row["min_frequency"],
                                       .special_tokens = row["special_tokens"],
                                       .full_alphabet = row["full_alphabet"],
                                       .on_progress = nullptr});
  EXPECT_EQ(bpe.tokens.size(), row["tokens"].get<size_t>());
  EXPECT_EQ(bpe.merges.size(), row["merges"].get<size_t>());
  EXPECT_EQ(tok::sha256_hex(tok::vocab_json(bpe)), row["vocab_json"].get<std::string>());
  EXPECT_EQ(tok::sha256_hex(tok::merges_txt(bpe)), row["merges_txt"].get<std::string>());
}

std::vector<size_t> all_rows() {
  std::vector<size_t> rows(train_goldens()["rows"].size());
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = i;
  return rows;
}

INSTANTIATE_TEST_SUITE_P(, TrainGoldenTest, testing::ValuesIn(all_rows()));

TEST(TrainTest, ResultDependsOnlyOnCounts) {
  const std::vector<std::string> texts = random_texts(11, 600);
  const tok::PieceCounts whole = count_pieces(texts);
  tok::PieceCounts sum;
  for (size_t part = 0; part < 7; ++part) {
    std::vector<std::string> some;
    for (size_t i = texts.size() - 1 - part; i < texts.size(); i -= 7) some.push_back(texts[i]);
    sum.add_all(count_pieces(some));
  }
  EXPECT_EQ(sum.size(), whole.size());
  EXPECT_EQ(sum.total(), whole.total());
  EXPECT_EQ(sum.sorted(), whole.sorted());
}

TEST(TrainTest, CountsAreSixtyFourBits) {
  tok::PieceCounts counts;
  counts.add("ab", int64_t{1} << 40);
  counts.add("cd", (int64_t{1} << 40) + 1);
  counts.add("ab", 1);
  counts.add("ef", 3);
  counts.add("", 5);
  EXPECT_EQ(counts.size(), 3);
  EXPECT_EQ(counts.total(), (int64_t{1} << 41) + 5);
  const tok::TrainedBpe bpe = tok::train_bpe(
      counts.sorted(), {.vocab_size = 100, .special_tokens = {}, .full_alphabet = false});
  ASSERT_EQ(bpe.merges.size(), 3u);
  EXPECT_EQ(bpe.tokens[6], "ab") << "equal counts: the pair of smaller ids first";
  EXPECT_EQ(bpe.tokens[7], "cd");
}

TEST(TrainTest, WhatItWritesLoadsAndRoundTrips) {
  const std::vector<std::string> texts = random_texts(12, 500);
  const tok::TrainedBpe bpe = tok::train_bpe(
      count_pieces(texts).sorted(),
      {.vocab_size = 2000, .special_tokens = {"<|endoftext|>", "<|endoftext|>", "\"\\\n"}});
  EXPECT_EQ(bpe.num_special, 2u);
  const tok::Tokenizer one = tok::Tokenizer::from_tokenizer_json(tok::tokenizer_json(bpe, false));
  const tok::Tokenizer two = tok::Tokenizer::from_gpt2(tok::vocab_json(bpe), tok::merges_txt(bpe));
  EXPECT_EQ(one.vocab_size(), 2000);
  EXPECT_EQ(one.eod_id(), 0);
  EXPECT_EQ(two.eod_id(), 0);
  for (const std::string& text : texts) {
    const std::vector<int32_t> ids = one.encode(text);
    ASSERT_EQ(two.encode(text), ids);
    ASSERT_EQ(one.decode(ids), text);
  }
  EXPECT_EQ(one.encode("\"\\\n", {.special_tokens_in_text = tok::SpecialTokens::parse}),
            std::vector<int32_t>{1});
}

TEST(TrainTest, SmallAndEmptyInputs) {
  const tok::TrainedBpe empty = tok::train_bpe({}, {.vocab_size = 1000, .special_tokens = {"<s>"}});
  EXPECT_EQ(empty.tokens.size(), 257u);
  EXPECT_TRUE(empty.merges.empty());
  EXPECT_NO_THROW(tok::Tokenizer::from_tokenizer_json(tok::tokenizer_json(empty, true)));
  const tok::TrainedBpe small = tok::train_bpe({{"aaaa", 5}}, {.vocab_size = 10});
  EXPECT_EQ(small.tokens.size(), 256u) << "the alphabet is never cut, as in the reference";
  EXPECT_THROW(tok::train_bpe({}, {.vocab_size = 0}), std::invalid_argument);
}

}  // namespace
}  // namespace tok_test
