// The scanners of pretokenize.h against what the reference engines cut.
// SPDX-License-Identifier: MIT
#include "libtok/pretokenize.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tok {
namespace {

std::vector<std::string> pieces(const PreTokenizer& pretokenizer, std::string_view text) {
  std::vector<std::string> out;
  PieceCutter cutter(pretokenizer, text);
  for (std::string_view p = cutter.next(); !p.empty(); p = cutter.next()) out.emplace_back(p);
  return out;
}

using Pieces = std::vector<std::string>;

TEST(Pretokenize, WhiteSpaceIsGivenBackToTheNextWord) {
  EXPECT_EQ(pieces(make_pretokenizer(Family::gpt2), "a\n\n  b"), (Pieces{"a", "\n\n ", " b"}));
  EXPECT_EQ(pieces(make_pretokenizer(Family::gpt2), "a\r\n\r\nb"),
            (Pieces{"a", "\r\n\r", "\n", "b"}));
  EXPECT_EQ(pieces(make_pretokenizer(Family::cl100k), "a\r\n\r\nb"),
            (Pieces{"a", "\r\n\r\n", "b"}));
  EXPECT_EQ(pieces(make_pretokenizer(Family::gpt2), " \u00a0x"), (Pieces{" ", "\u00a0", "x"}));
  EXPECT_EQ(pieces(make_pretokenizer(Family::cl100k), " \u00a0x"), (Pieces{" ", "\u00a0x"}));
}

TEST(Pretokenize, StagesCutThePiecesOfTheStageBefore) {
  PreTokenizer starcoder = make_pretokenizer(Family::digits, Family::gpt2);
  EXPECT_EQ(pieces(starcoder, "ab 12  3"), (Pieces{"ab", " ", "1", "2", "  ", "3"}));
  EXPECT_EQ(pieces(PreTokenizer{}, "ab 12"), (Pieces{"ab 12"}));
}

}  // namespace
}  // namespace tok
