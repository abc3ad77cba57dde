// merge_piece and the exact cut against the reference merge, on random vocabularies of every kind,
// and their results where the reference is too slow.
// SPDX-License-Identifier: MIT
#include "libtok/merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "libtok/boundaries.h"
#include "libtok/encode.h"
#include "libtok/hot_table.h"
#include "tests/sanitized.h"
#include "tests/tok/tok_data.h"

namespace tok_test {
namespace {

std::string random_string(Random& random, uint32_t letters, uint32_t longest) {
  std::string text(1 + random.next(longest), '\0');
  for (char& c : text) c = static_cast<char>('a' + random.next(letters));
  return text;
}

/// A vocabulary over a few letters whose merges come in any order, with ids in any order, merges of
/// one token by several ways, repeated merges, and bytes that are missing.
tok::VocabSource random_vocab(Random& random, uint32_t letters) {
  tok::VocabSource source;
  source.rank_rule = random.next(3) == 0 ? tok::RankRule::by_id : tok::RankRule::by_list;
  const bool by_list = source.rank_rule == tok::RankRule::by_list;
  source.whole_piece_first = !by_list || random.next(3) == 0;
  std::vector<std::string> tokens;
  const int dropped = by_list && letters > 1 && random.next(3) == 0
                          ? 'a' + static_cast<int>(random.next(letters))
                          : -1;
  for (int byte = 0; byte < 256; ++byte) {
    if (byte != dropped) tokens.emplace_back(1, static_cast<char>(byte));
  }
  std::vector<std::string> usable;
  for (const std::string& token : tokens) {
    if (token[0] >= 'a' && token[0] < static_cast<char>('a' + letters)) usable.push_back(token);
  }
  const uint32_t num_merges = 1 + random.next(40);
  for (uint32_t i = 0; i < num_merges; ++i) {
    const std::string left = usable[random.next(static_cast<uint32_t>(usable.size()))];
    const std::string right = usable[random.next(static_cast<uint32_t>(usable.size()))];
    if (left.size() + right.size() > 12) continue;
    source.merges.emplace_back(left, right);
    if (std::find(tokens.begin(), tokens.end(), left + right) == tokens.end()) {
      tokens.push_back(left + right);
      usable.push_back(left + right);
    }
  }
  for (size_t i = source.merges.size(); i > 1; --i) {
    std::swap(source.merges[i - 1], source.merges[random.next(static_cast<uint32_t>(i))]);
  }
  std::vector<int32_t> ids(tokens.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(2 * i);
  if (random.next(2) == 0) std::reverse(ids.begin(), ids.end());
  for (size_t i = 0; i < tokens.size(); ++i) source.tokens.push_back({tokens[i], ids[i]});
  if (dropped >= 0 && random.next(2) == 0) {
    source.unk_id = ids[0];
    source.fuse_unk = random.next(2) == 0;
  }
  if (!by_list) source.merges.clear();
  return source;
}

std::vector<int32_t> plain(const tok::Vocab& vocab, std::string_view piece) {
  std::vector<int32_t> ids;
  tok::merge_piece_plain(vocab, piece, ids);
  return ids;
}

TEST(MergeTest, FastEqualsPlainOnRandomVocabularies) {
  Random random(1);
  for (int round = 0; round < rounds(200); ++round) {
    const uint32_t letters = 1 + random.next(4);
    const tok::Vocab vocab(random_vocab(random, letters));
    const tok::ExactCut cut(vocab);
    const tok::HotTable hot(vocab);
    const tok::SimdLevel level = round % 2 == 0 ? tok::SimdLevel::plain : tok::best_simd_level();
    const tok::PieceModel model{vocab, cut, hot, level};
    tok::MergeScratch merge_scratch;
    tok::PieceScratch scratch(random.next(2) * 8, random.next(2) * 8);
    for (int i = 0; i < 60; ++i) {
      const std::string piece = random_string(random, letters, i < 50 ? 40 : 400);
      std::vector<int32_t> ids(piece.size());
      ids.resize(tok::merge_piece(vocab, piece, merge_scratch, ids.data()));
      ASSERT_EQ(ids, plain(vocab, piece)) << "round " << round << ", piece " << piece;
      std::vector<int32_t> expected;
      tok::encode_piece_plain(vocab, piece, expected);
      tok::TokenBuffer out;
      const uint32_t end = static_cast<uint32_t>(piece.size());
      tok::encode_pieces(model, piece, 0, {&end, 1}, scratch, out);
      ASSERT_EQ(std::vector<int32_t>(out.tokens().begin(), out.tokens().end()), expected)
          << "round " << round << ", piece " << piece;
    }
  }
}

TEST(MergeTest, WindowsGiveTheWholeAnswerOrNone) {
  Random random(5);
  int64_t joined = 0, refused = 0;
  tok::MergeScratch scratch;
  for (int round = 0; round < rounds(400); ++round) {
    const uint32_t letters = 1 + random.next(4);
    const tok::Vocab vocab(random_vocab(random, letters));
    for (int i = 0; i < 20; ++i) {
      const std::string piece = random_string(random, letters, 500);
      const size_t window = 4 + random.next(100);
      tok::TokenBuffer out;
      out.push_back(7);
      if (tok::merge_windows(vocab, piece, window, scratch, out)) {
        joined += piece.size() > window;
        std::vector<int32_t> expected = plain(vocab, piece);
        expected.insert(expected.begin(), 7);
        ASSERT_EQ(std::vector<int32_t>(out.tokens().begin(), out.tokens().end()), expected)
            << "round " << round << ", window " << window << ", piece " << piece;
      } else {
        ++refused;
        ASSERT_EQ(out.size(), 1U);
      }
    }
  }
  EXPECT_GT(joined, rounds(2000));
  EXPECT_GT(refused, rounds(100));
}

TEST(MergeTest, CutsSplitTheAnswer) {
  Random random(2);
  int64_t cuts = 0;
  for (int round = 0; round < rounds(300); ++round) {
    const tok::Vocab vocab(random_vocab(random, 4));
    const tok::ExactCut cut(vocab);
    for (int i = 0; i < 30; ++i) {
      const std::string piece = random_string(random, 4, 30);
      for (size_t at = 1; at < piece.size(); ++at) {
        if (!cut.can_cut(piece, at)) continue;
        ++cuts;
        std::vector<int32_t> parts = plain(vocab, std::string_view(piece).substr(0, at));
        for (int32_t id : plain(vocab, std::string_view(piece).substr(at))) parts.push_back(id);
        ASSERT_EQ(parts, plain(vocab, piece)) << "round " << round << ", " << piece << " at " << at;
      }
    }
  }
  EXPECT_GT(cuts, rounds(10000)) << "the test must reach cuts to mean anything";
}

/// A text of characters of three bytes, which share their bytes.
std::string wide_string(Random& random, uint32_t longest) {
  std::string text;
  for (uint32_t i = 1 + random.next(longest); i > 0; --i) {
    text += static_cast<char>(0xE3 + random.next(2));
    text += static_cast<char>(0x81 + random.next(2));
    text += static_cast<char>(0x81 + random.next(3));
  }
  return text;
}

TEST(MergeTest, WideCharactersThatDoNotJoinSplitTheAnswer) {
  Random random(77);
  int64_t cuts = 0, joined = 0;
  for (int round = 0; round < 300; ++round) {
    tok::VocabSource source;
    source.rank_rule = tok::RankRule::by_id;
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    for (uint32_t i = 2 + random.next(30); i > 0; --i) {
      const std::string text = wide_string(random, 3);
      const size_t from = random.next(static_cast<uint32_t>(text.size() - 1));
      const size_t size = 2 + random.next(static_cast<uint32_t>(text.size() - from - 1));
      const std::string token = text.substr(from, size);
      if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.push_back(token);
    }
    for (size_t i = 0; i < tokens.size(); ++i) {
      source.tokens.push_back({tokens[i], static_cast<int32_t>(i)});
    }
    const tok::Vocab vocab(source);
    const tok::ExactCut cut(vocab, 0);
    for (int i = 0; i < 20; ++i) {
      const std::string text = wide_string(random, 8);
      std::vector<int32_t> whole;
      tok::merge_piece_plain(vocab, text, whole);
      for (size_t at = 3; at < text.size(); at += 3) {
        if (cut.neighbours().joins_wide(reinterpret_cast<const uint8_t*>(text.data()) + at)) {
          ++joined;
          continue;
        }
        ++cuts;
        std::vector<int32_t> parts;
        tok::merge_piece_plain(vocab, text.substr(0, at), parts);
        tok::merge_piece_plain(vocab, text.substr(at), parts);
        ASSERT_EQ(parts, whole) << "round " << round << " at " << at;
      }
    }
  }
  EXPECT_GT(cuts, 1000);
  EXPECT_GT(joined, 1000);
}

TEST(MergeTest, EqualRanksGoLeftmostAndLaterDuplicatesWin) {
  tok::VocabSource source;
  for (int byte = 0; byte < 256; ++byte) {
    source.tokens.push_back({std::string(1, static_cast<char>(byte)), byte});
  }
  source.tokens.push_back({"aa", 256});
  source.tokens.push_back({"ab", 257});
  source.merges = {{"a", "a"}, {"a", "b"}};
  EXPECT_THAT(plain(tok::Vocab(source), "aaab"), testing::ElementsAre(256, 257));
  source.merges.emplace_back("a", "a");
  const tok::Vocab again(source);
  EXPECT_EQ(again.duplicate_merges(), 1);
  EXPECT_THAT(plain(again, "aab"), testing::ElementsAre('a', 257));
}

/// A piece of `bytes` bytes.
constexpr size_t kLong = kSanitized ? size_t{1} << 17 : size_t{1} << 20;

/// Long pieces of every kind that makes other encoders quadratic. Times are printed, not checked.
TEST(MergeTest, LongPiecesAreExact) {
  const tok::Tokenizer tokenizer = *load_case("small-whole");
  Random random(3);
  std::string letters(kLong, ' ');
  for (char& c : letters) c = static_cast<char>('a' + random.next(26));
  const std::pair<const char*, std::string> texts[] = {{"a", std::string(kLong, 'a')},
                                                       {"space", std::string(kLong, ' ')},
                                                       {"line feed", std::string(kLong, '\n')},
                                                       {"=", std::string(kLong, '=')},
                                                       {"letters", letters}};
  tok::Scratch scratch;
  tok::TokenBuffer out;
  for (const auto& [name, text] : texts) {
    out.clear();
    const auto start = std::chrono::steady_clock::now();
    tokenizer.encode(text, scratch, out);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::printf("a long piece of %s: %.3f s, %zu tokens\n", name, took.count(), out.size());
    EXPECT_EQ(tokenizer.decode(out.tokens()), text) << name;
    // The reference, on a part of it.
    const std::string_view part = std::string_view(text).substr(0, 3000);
    std::vector<int32_t> expected;
    tokenizer.encode_plain(part, expected);
    EXPECT_EQ(tokenizer.encode(part), expected) << name;
  }
}

}  // namespace
}  // namespace tok_test
