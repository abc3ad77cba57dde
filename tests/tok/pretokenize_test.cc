// The scanners of pretokenize.h against what the reference engines cut: digests made by
// tests/reference/make_pretokenize_golden.py, whose texts are made again here.
// SPDX-License-Identifier: MIT
#include "libtok/pretokenize.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "libtok/unicode.h"
#include "tests/sanitized.h"

namespace tok {
namespace {

using Pieces = std::vector<std::string>;

Pieces pieces(const PreTokenizer& pretokenizer, std::string_view text) {
  Pieces out;
  PieceCutter cutter(pretokenizer, text);
  for (std::string_view p = cutter.next(); !p.empty(); p = cutter.next()) out.emplace_back(p);
  return out;
}

struct Digest {
  uint64_t value = 0xCBF29CE484222325u;
  void add(uint32_t word) {
    for (int i = 0; i < 4; ++i) value = (value ^ (word >> 8 * i & 255)) * 0x100000001B3u;
  }
};

using Visit = std::function<void(std::string_view)>;

const std::vector<std::string> kAlphabet = {
    "a",      "A",      "s", "L",      "1",       " ", "\n",     "\r",     "\t",
    "'",      "!",      "/", "\u00a0", "\u3000",  "é", "中",     "\u0301", "\u017f",
    "\u0663", "\u01c5", "ʰ", "😀",      {"\0", 1}, "e", "\u30c6", "\u0378"};
const std::vector<std::string> kShort = {"a", "B", "s",      "1",  " ",     "\n",
                                         "'", "!", "\u00a0", "中", "\u0301"};

void all_texts(const std::vector<std::string>& alphabet, int longest, const Visit& visit) {
  size_t count = 1;
  for (int length = 1; length <= longest; ++length) {
    count *= alphabet.size();
    for (size_t i = 0; i < count; ++i) {
      std::string text;
      for (size_t n = i, k = 0; k < static_cast<size_t>(length); ++k, n /= alphabet.size()) {
        text += alphabet[n % alphabet.size()];
      }
      visit(text);
    }
  }
}

void random_texts(int count, const Visit& visit) {
  uint64_t state = 1;
  auto step = [&state] { return state = state * 6364136223846793005u + 1442695040888963407u; };
  for (int i = 0; i < count; ++i) {
    step();
    uint64_t length = 1 + (state >> 33) % 120;
    uint64_t sticky = state >> 60 & 3;
    std::string text;
    size_t letter = 0;
    for (uint64_t k = 0; k < length; ++k) {
      step();
      if ((state >> 35) % 4 >= sticky) letter = (state >> 40) % kAlphabet.size();
      text += kAlphabet[letter];
    }
    visit(text);
  }
}

void context_texts(char32_t step, const Visit& visit) {
  for (char32_t c = 0; c < 0x110000; c += step) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string x;
    append_utf8(x, c);
    for (const std::string& text :
         {x, " " + x, x + "'s", x + x, "\n" + x, "1" + x, x + "1", "a " + x + " b", "a" + x,
          x + "A", "!" + x + "a", x + " a", "'" + x}) {
      visit(text);
    }
  }
}

void texts(const std::string& generator, const Visit& visit) {
  size_t colon = generator.find(':');
  std::string kind = generator.substr(0, colon);
  int size = std::stoi(generator.substr(colon + 1));
  if (kind == "all") return all_texts(kAlphabet, size, visit);
  if (kind == "short") return all_texts(kShort, size, visit);
  if (kind == "random") return random_texts(size, visit);
  ASSERT_EQ(kind, "contexts");
  context_texts(static_cast<char32_t>(size), visit);
}

std::optional<Family> family_of_name(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(Family::cjk_runs); ++i) {
    if (family_name(static_cast<Family>(i)) == name) return static_cast<Family>(i);
  }
  return std::nullopt;
}

/// "a+b" as stages.
PreTokenizer chain_of_names(const std::string& names) {
  PreTokenizer chain;
  std::istringstream in(names);
  for (std::string name; std::getline(in, name, '+');) {
    std::optional<Family> family = family_of_name(name);
    EXPECT_TRUE(family.has_value()) << name;
    chain.stages[chain.num_stages++] = family.value_or(Family::whole);
  }
  return chain;
}

ClassSet set_of_name(const std::string& name) {
  const std::pair<std::string, ClassSet> kSets[] = {
      {"Lu", kUpper},       {"Ll", kLower}, {"Lt", kTitle}, {"Lm", kModifier},
      {"Lo", kOtherLetter}, {"M", kMark},   {"N", kNumber}, {"P", kPunctuation},
      {"S", kSymbol},       {"L", kLetter}, {"s", kSpace},
  };
  for (const auto& [known, set] : kSets) {
    if (known == name) return set;
  }
  ADD_FAILURE() << "unknown class " << name;
  return 0;
}

/// Lines of the golden file whose first word passes `wanted`.
std::vector<std::string> golden_lines(const std::function<bool(std::string_view)>& wanted) {
  std::ifstream file(GOLDEN_DIR "/tok/pretokenize.txt");
  std::vector<std::string> out;
  for (std::string line; std::getline(file, line);) {
    if (wanted(line.substr(0, line.find(' ')))) out.push_back(line);
  }
  return out;
}

TEST(Unicode, ClassesAreThoseOfTheEngines) {
  std::vector<std::string> lines = golden_lines([](std::string_view w) { return w == "class"; });
  ASSERT_EQ(lines.size(), 11u);
  for (const std::string& line : lines) {
    std::istringstream in(line);
    std::string word, name, digest;
    size_t count;
    in >> word >> name >> count >> digest;
    ClassSet set = set_of_name(name);
    Digest mine;
    size_t members = 0;
    for (char32_t c = 0; c < 0x110000; ++c) {
      if ((c >= 0xD800 && c < 0xE000) || !(class_of(c) & set)) continue;
      mine.add(c);
      ++members;
    }
    EXPECT_EQ(members, count) << name;
    EXPECT_EQ(mine.value, std::stoull(digest, nullptr, 16)) << name;
  }
}

TEST(Pretokenize, EveryPatternHasItsFamily) {
  std::vector<std::string> lines = golden_lines([](std::string_view w) { return w == "pattern"; });
  ASSERT_GE(lines.size(), 9u);
  for (const std::string& line : lines) {
    size_t space = line.find(' ', 8);
    // tiktoken's pattern has two families, one for each engine.
    const bool by_tiktoken = line.substr(8, space - 8) == "cl100k";
    std::optional<Family> family = family_of_pattern(
        line.substr(space + 1), by_tiktoken ? PatternEngine::tiktoken : PatternEngine::oniguruma);
    ASSERT_TRUE(family.has_value()) << line;
    EXPECT_EQ(family_name(*family), line.substr(8, space - 8));
  }
  for (PatternEngine engine : {PatternEngine::tiktoken, PatternEngine::oniguruma}) {
    EXPECT_FALSE(family_of_pattern(R"(\s+|\w+)", engine).has_value());
  }
}

TEST(Pretokenize, CutsWhereTheEnginesCut) {
  std::vector<std::string> lines =
      golden_lines([](std::string_view w) { return w != "#" && w != "class" && w != "pattern"; });
  ASSERT_GE(lines.size(), 40u);
  for (const std::string& line : lines) {
    std::istringstream in(line);
    std::string names, generator, digest;
    size_t count;
    in >> names >> generator >> count >> digest;
    // Every code point in thirteen contexts takes half a minute; every eleventh is always tried.
    if (generator == "contexts:1" && std::getenv("TOK_LONG_TESTS") == nullptr) continue;
    if (kSanitized && generator.starts_with("contexts:")) continue;
    PreTokenizer chain = chain_of_names(names);
    Digest mine;
    size_t made = 0;
    texts(generator, [&](std::string_view text) {
      PieceCutter cutter(chain, text);
      while (!cutter.next().empty()) mine.add(static_cast<uint32_t>(cutter.position()));
      mine.add(0);
      ++made;
    });
    EXPECT_EQ(made, count) << line;
    EXPECT_EQ(mine.value, std::stoull(digest, nullptr, 16)) << line;
  }
}

TEST(Pretokenize, WhiteSpaceIsGivenBackToTheNextWord) {
  EXPECT_EQ(pieces(make_pretokenizer(Family::gpt2), "a\n\n  b"), (Pieces{"a", "\n\n ", " b"}));
  EXPECT_EQ(pieces(make_pretokenizer(Family::gpt2), "a\r\n\r\nb"),
            (Pieces{"a", "\r\n\r", "\n", "b"}));
  EXPECT_EQ(pieces(make_pretokenizer(Family::cl100k), "a\r\n\r\nb"),
            (Pieces{"a", "\r\n\r\n", "b"}));
  EXPECT_EQ(pieces(make_pretokenizer(Family::gpt2), " \u00a0x"), (Pieces{" ", "\u00a0", "x"}));
  EXPECT_EQ(pieces(make_pretokenizer(Family::cl100k), " \u00a0x"), (Pieces{" ", "\u00a0x"}));
}

TEST(Pretokenize, Cl100kKeepsTheTailOfATextWhole) {
  EXPECT_EQ(pieces(make_pretokenizer(Family::cl100k), "a\n  "), (Pieces{"a", "\n  "}));
  EXPECT_EQ(pieces(make_pretokenizer(Family::llama3), "a\n  "), (Pieces{"a", "\n", "  "}));
}

TEST(Pretokenize, OnigurumaReadsAPossessiveIntervalAsARepetition) {
  EXPECT_EQ(pieces(make_pretokenizer(Family::cl100k), "1234 12345 "),
            (Pieces{"123", "4", " ", "123", "45", " "}));
  EXPECT_EQ(pieces(make_pretokenizer(Family::cl100k_runs), "1234 12345 "),
            (Pieces{"1234", " ", "12345", " "}));
}

TEST(Pretokenize, ContractionsFoldTheLongS) {
  EXPECT_EQ(pieces(make_pretokenizer(Family::cl100k), "a'\u017fx"), (Pieces{"a", "'\u017f", "x"}));
  EXPECT_EQ(pieces(make_pretokenizer(Family::gpt2), "a'\u017fx"), (Pieces{"a", "'", "\u017fx"}));
}

TEST(Pretokenize, StagesCutThePiecesOfTheStageBefore) {
  PreTokenizer starcoder = make_pretokenizer(Family::digits, Family::gpt2);
  EXPECT_EQ(pieces(starcoder, "ab 12  3"), (Pieces{"ab", " ", "1", "2", "  ", "3"}));
  EXPECT_EQ(pieces(PreTokenizer{}, "ab 12"), (Pieces{"ab 12"}));
}

TEST(Pretokenize, InvalidBytesAreCharactersOfNoClass) {
  EXPECT_EQ(pieces(make_pretokenizer(Family::gpt2), "a\xE4\xB8z\xFF\x80 \xC3"),
            (Pieces{"a", "\xE4\xB8", "z", "\xFF\x80", " \xC3"}));
}

TEST(Unicode, RepairsByMaximalSubpart) {
  const std::string r = "\uFFFD";
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82"
                                 "A"),
            r + "A");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF"), r + r);
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80"), r + r + r + r);
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98"), r);
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98\x80"), "\xF0\x9F\x98\x80");
  EXPECT_EQ(replace_invalid_utf8("\x80"
                                 "ab\xC3"),
            r + "ab" + r);
  EXPECT_EQ(find_invalid_utf8("abcdefghijk\xC3\xA9\xFF"), 13u);
  EXPECT_EQ(find_invalid_utf8("abcdefgh"), 8u);
  EXPECT_EQ(find_invalid_utf8(""), 0u);
}

TEST(Unicode, DecodeAndAppendAreInverse) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string x;
    append_utf8(x, c);
    CodePoint back = decode(x + "a", 0);
    ASSERT_EQ(back.value, c);
    ASSERT_EQ(back.length, x.size());
    ASSERT_EQ(find_invalid_utf8(x), x.size());
  }
}

}  // namespace
}  // namespace tok
