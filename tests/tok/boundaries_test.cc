// SPDX-License-Identifier: MIT
// Boundary masks against the plain scanners, at every instruction level of this processor: short
// texts at every offset of a block, random mixes over many blocks, every batch size, texts that end
// at a page's end.
#include "libtok/boundaries.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "libtok/unicode.h"
#include "tests/sanitized.h"

namespace tok {
namespace {

const PreTokenizer kMasked[] = {
    make_pretokenizer(Family::gpt2),
    make_pretokenizer(Family::digits, Family::gpt2),
    make_pretokenizer(Family::cl100k),
    make_pretokenizer(Family::llama3),
    make_pretokenizer(Family::qwen2),
    make_pretokenizer(Family::qwen35),
    make_pretokenizer(Family::o200k),
    make_pretokenizer(Family::tekken),
    make_pretokenizer(Family::digit_triples, Family::cjk_runs, Family::deepseek3),
};

const std::vector<std::string> kAlphabet = {
    "a",      "B", "s",      "l",      "1",          " ", "\n", "\r",         "\t",
    "'",      "!", "/",      "\u00a0", "\u3000",     "é", "中", "\u0301",     "\u017f",
    "\u0663", "½", "\u2028", "…",      "\U0001F600", "e", "T",  "\U00011DE0", "\U0001D7CE"};
/// Bytes that are no characters, and their neighbours.
const std::vector<std::string> kBroken = {
    "\x80", "\xC3", "\xC1\x81", "\xE3\x80", "\xF0\x9F", "\xFF", "\xED\xA0\x80",
    "a",    " ",    "1",        "\n",       "'",        "é"};

std::vector<SimdLevel> levels() {
  std::vector<SimdLevel> out;
  for (SimdLevel level :
       {SimdLevel::plain, SimdLevel::avx2, SimdLevel::avx512bw, SimdLevel::avx512vbmi2}) {
    if (level <= best_simd_level()) out.push_back(level);
  }
  return out;
}

std::vector<uint32_t> plain_ends(const PreTokenizer& pretokenizer, std::string_view text) {
  std::vector<uint32_t> out;
  PieceCutter cutter(pretokenizer, text);
  while (!cutter.next().empty()) out.push_back(static_cast<uint32_t>(cutter.position()));
  return out;
}

std::vector<uint32_t> fast_ends(const PreTokenizer& pretokenizer, std::string_view text,
                                SimdLevel level, size_t batch = BoundaryScan::kMinBatch,
                                const JoinablePairs* joinable = nullptr) {
  std::vector<uint32_t> out, buffer(batch + 1, 0xA5A5A5A5u);
  BoundaryScan ends(pretokenizer, text, level, joinable);
  while (size_t count = ends.next(buffer.data(), batch)) {
    EXPECT_LE(count, batch);
    EXPECT_EQ(buffer[batch], 0xA5A5A5A5u);
    out.insert(out.end(), buffer.begin(), buffer.begin() + static_cast<ptrdiff_t>(count));
  }
  return out;
}

std::string shown(std::string_view text) {
  std::string out;
  for (char c : text) {
    char buffer[8];
    std::snprintf(buffer, sizeof buffer, c > 32 && c < 127 ? "%c" : "\\x%02x",
                  static_cast<unsigned char>(c));
    out += buffer;
  }
  return out;
}

/// All pre-tokenizers and levels on one text.
void check(std::string_view text) {
  for (const PreTokenizer& pretokenizer : kMasked) {
    std::vector<uint32_t> want = plain_ends(pretokenizer, text);
    for (SimdLevel level : levels()) {
      ASSERT_EQ(fast_ends(pretokenizer, text, level), want)
          << simd_level_name(level) << " " << family_name(pretokenizer.stages[0]) << " "
          << shown(text);
    }
  }
}

TEST(Boundaries, LevelsHaveNamesAndAnOrder) {
  EXPECT_LE(chosen_simd_level(), best_simd_level());
  EXPECT_EQ(simd_level_name(SimdLevel::avx512vbmi2), "avx512vbmi2");
#if defined(__x86_64__)
  const bool x86 = true;
#else
  const bool x86 = false;  // the plain scanners serve other processors
#endif
  for (const PreTokenizer& pretokenizer : kMasked) EXPECT_EQ(has_boundary_masks(pretokenizer), x86);
  EXPECT_FALSE(has_boundary_masks(make_pretokenizer(Family::deepseek3)));  // only its sequence
  RecordProperty("best_level", std::string(simd_level_name(best_simd_level())));
}

TEST(Boundaries, ShortTextsAtEveryOffsetOfABlock) {
  for (std::string_view fill : {"x", " ", "7"}) {
    std::string before;
    for (size_t offset = 0; offset <= 66; ++offset, before += fill) {
      if (kSanitized && offset % 31 > 2) continue;
      for (const std::string& a : kAlphabet) {
        for (const std::string& b : kAlphabet) {
          check(before + a + b);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Boundaries, TriplesOfTextAroundABlocksEnd) {
  const std::vector<std::string> symbols = {"a", "s", "1", " ", "\n", "'", "!", "\u3000", "é", "½"};
  for (size_t offset = 58; offset <= 64; ++offset) {
    const std::string before(offset, 'x');
    for (size_t n = 0; n < 100000; ++n) {
      std::string text = before;
      for (size_t k = 0, rest = n; k < 5; ++k, rest /= 10) text += symbols[rest % 10];
      if (offset % 7 != n % 7) continue;  // a seventh of them at each offset
      if (kSanitized && n % 11 != 0) continue;
      check(text);
      if (HasFatalFailure()) return;
    }
  }
}

std::string random_text(uint64_t& state, const std::vector<std::string>& alphabet, size_t most) {
  auto step = [&state] { return state = state * 6364136223846793005u + 1442695040888963407u; };
  step();
  size_t length = 1 + (state >> 33) % most;
  uint64_t sticky = state >> 58 & 31;  // runs of up to a few blocks
  std::string text;
  size_t letter = 0;
  for (size_t k = 0; k < length; ++k) {
    step();
    if ((state >> 35) % 32 >= sticky) letter = (state >> 40) % alphabet.size();
    text += alphabet[letter];
  }
  return text;
}

TEST(Boundaries, RandomMixes) {
  uint64_t state = 7;
  for (int i = 0; i < rounds(6000); ++i) {
    check(random_text(state, kAlphabet, 600));
    if (HasFatalFailure()) return;
  }
  const std::vector<std::string> white = {" ", "\n", "\u3000", "\t", "\u00a0", "a", "!", "\r"};
  for (int i = 0; i < rounds(6000); ++i) {
    check(random_text(state, white, 400));
    if (HasFatalFailure()) return;
  }
}

/// Without marks and controls, which some families leave to the scanners.
TEST(Boundaries, CasesAndCjk) {
  const std::vector<std::string> symbols[] = {
      {"a", "B",  "s", "l", "D", "é",  "É", "中", "の",  "ー",     "ǅ",  "・", "1",
       " ", "\n", "'", "!", "/", "。", "T", "'s", "'LL", "\u3000", "\t", "٣",  "゛"},
      {"a", "B", "中", "'", "s", "S"},
      {"x", "Y", "中", "Z"},
      {"!", "\n", "/", "a", " ", "ア", "・"},
      {"#", "a", "é", "中", "1", " ", "\n"},
      {"é", "Ж", "ж", "ß", "ǅ", "ʰ", "ª", "٣", "½", "\u00A0", "\u0301", "×", "م", "߿", "a", " ",
       "中"}};
  uint64_t state = 41;
  for (int i = 0; i < rounds(12000); ++i) {
    check(random_text(state, symbols[i % 6], 300));
    if (HasFatalFailure()) return;
  }
}

TEST(Boundaries, EveryCodePoint) {
  uint64_t state = 29;
  std::string text;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    if (c > 0x32000 && c < 0xE0000 && c % 97 != 0) continue;  // all unassigned or all letters
    state = state * 6364136223846793005u + 1442695040888963407u;
    if (state >> 61 == 0) text += kAlphabet[(state >> 33) % kAlphabet.size()];
    append_utf8(text, c);
    if (state >> 62 == 0) append_utf8(text, c);
    if (text.size() < 500) continue;
    check(text);
    if (HasFatalFailure()) return;
    text.clear();
  }
}

/// Cuts inside pieces: only where the bytes do not join, and every natural boundary is found.
TEST(Boundaries, CutsInsideOnlyWhereNothingJoins) {
  JoinablePairs joinable;
  uint64_t state = 31;
  for (int i = 0; i < rounds(20000); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    joinable.set(static_cast<uint8_t>(state >> 40), static_cast<uint8_t>(state >> 50));
  }
  for (int first = 0x80; first < 0xC0; ++first) {
    for (int second = 0xE0; second < 0xF0; ++second) {
      EXPECT_EQ(joinable.joins(static_cast<uint8_t>(first), static_cast<uint8_t>(second)),
                (joinable.wide[first & 63] >> (second & 15) & 1) != 0);
    }
  }
  const std::vector<std::string> wide = {"中", "国", "の", "。", "\u3000", "한",
                                         "，", "a",  " ",  "😀",  "\n",     "ア"};
  for (int i = 0; i < rounds(3000); ++i) {
    std::string text = random_text(state, wide, 150);
    for (const PreTokenizer& pretokenizer : kMasked) {
      std::vector<uint32_t> natural = plain_ends(pretokenizer, text);
      for (SimdLevel level : levels()) {
        std::vector<uint32_t> ends =
            fast_ends(pretokenizer, text, level, BoundaryScan::kMinBatch, &joinable);
        ASSERT_TRUE(std::is_sorted(ends.begin(), ends.end()));
        ASSERT_TRUE(std::includes(ends.begin(), ends.end(), natural.begin(), natural.end()));
        size_t inside = 0;
        for (uint32_t end : ends) {
          if (std::binary_search(natural.begin(), natural.end(), end)) continue;
          ++inside;
          ASSERT_FALSE(
              joinable.joins(static_cast<uint8_t>(text[end - 1]), static_cast<uint8_t>(text[end])));
        }
        ASSERT_EQ(ends.size(), natural.size() + inside);
      }
    }
  }
}

/// The same between wide characters, where all bytes may join: two without a common side are cut
/// apart at once, others only if contexts are asked and there is none of them.
TEST(Boundaries, CutsBetweenWideCharacters) {
  const std::vector<std::string> wide = {"中", "国", "の", "。", "한",
                                         "，", "ア", "a",  "é",  "\u3000"};
  uint64_t state = 37;
  size_t apart = 0, asked = 0;
  for (int i = 0; i < rounds(600); ++i) {
    JoinablePairs joinable;
    std::ranges::fill(joinable.pairs, ~uint64_t{0});
    std::ranges::fill(joinable.wide, uint16_t{0xFFFF});
    joinable.asks_contexts = i % 2 == 0;
    joinable.wide_sides.assign(65536, {0, 0});
    joinable.wide_contexts = ContextFilter(64);
    for (const std::string& left : wide) {
      if (left.size() != 3) continue;
      state = state * 6364136223846793005u + 1442695040888963407u;
      joinable.wide_sides[wide_number(left.data())] = {state >> 60, state >> 40 & 15};
      const auto* bytes = reinterpret_cast<const uint8_t*>(left.data());
      joinable.wide_contexts.add({bytes[2], 1}, {wide_number(wide[i % 3].data()), 2});
    }
    const std::string text = random_text(state, wide, 150);
    for (const SimdLevel level : levels()) {
      const std::vector<uint32_t> natural = plain_ends(kMasked[0], text);
      for (const uint32_t end :
           fast_ends(kMasked[0], text, level, BoundaryScan::kMinBatch, &joinable)) {
        if (std::binary_search(natural.begin(), natural.end(), end)) continue;
        ASSERT_TRUE(is_wide(&text[end - 3]) && is_wide(&text[end]));
        ASSERT_FALSE(joinable.joins_wide(reinterpret_cast<const uint8_t*>(&text[end])));
        const bool common = (joinable.wide_sides[wide_number(&text[end - 3])].left &
                             joinable.wide_sides[wide_number(&text[end])].right) != 0;
        ASSERT_TRUE(!common || joinable.asks_contexts);
        ++(common ? asked : apart);
      }
    }
  }
  if (best_simd_level() < SimdLevel::avx512bw) return;
  EXPECT_GT(apart, 100u);
  EXPECT_GT(asked, 100u);
}

TEST(Boundaries, BrokenBytes) {
  uint64_t state = 11;
  for (int i = 0; i < rounds(6000); ++i) {
    check(random_text(state, kBroken, 200));
    if (HasFatalFailure()) return;
  }
}

TEST(Boundaries, BatchesOfAnySize) {
  uint64_t state = 3;
  for (int i = 0; i < rounds(60); ++i) {
    std::string text = random_text(state, kAlphabet, 6000);
    for (const PreTokenizer& pretokenizer : kMasked) {
      std::vector<uint32_t> want = plain_ends(pretokenizer, text);
      for (SimdLevel level : levels()) {
        for (size_t batch : {BoundaryScan::kMinBatch, BoundaryScan::kMinBatch + 1, size_t{257},
                             size_t{1000}, size_t{10000}}) {
          ASSERT_EQ(fast_ends(pretokenizer, text, level, batch), want) << batch;
        }
      }
    }
  }
}

TEST(Boundaries, NeverReadsPastTheText) {
  const size_t kPage = 4096;
  void* map = mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(map, MAP_FAILED);
  char* end = static_cast<char*>(map) + kPage;
  ASSERT_EQ(mprotect(end, kPage, PROT_NONE), 0);
  uint64_t state = 5;
  for (size_t length = 0; length < 260; ++length) {
    for (int i = 0; i < 12; ++i) {
      std::string text = random_text(state, i < 8 ? kAlphabet : kBroken, 300);
      text.resize(std::min(text.size(), length));
      std::memcpy(end - text.size(), text.data(), text.size());
      check({end - text.size(), text.size()});
      if (HasFatalFailure()) return;
    }
  }
  munmap(map, 2 * kPage);
}

}  // namespace
}  // namespace tok
