// SPDX-License-Identifier: MIT
// Every code point alone: whether it is a word's character to added tokens, and what the normal
// forms make of it between others. Held to digests of Hugging Face's tokenizers
// (tests/reference/make_character_goldens.py), whose normal forms end with Unicode 9.0.
#include <gtest/gtest.h>
#include <unicode/uchar.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "libtok/added_tokens.h"
#include "libtok/digest.h"
#include "libtok/normalize.h"
#include "libtok/unicode.h"
#include "tests/tok/tok_data.h"

namespace {

template <class Visit>
void each_code_point(Visit visit) {
  for (char32_t c = 0; c < 0x110000; ++c)
    if (c < 0xD800 || c >= 0xE000) visit(c);
}

TEST(CharactersTest, WordCharactersAreThoseOfTheReference) {
  const nlohmann::json golden = nlohmann::json::parse(tok_test::read_golden("characters.json"));
  std::string members;
  each_code_point([&](char32_t c) {
    if (!tok::is_word_character(c)) return;
    for (int byte = 0; byte < 4; ++byte) members += static_cast<char>(c >> 8 * byte & 255);
  });
  EXPECT_EQ(members.size() / 4, golden.at("words").get<size_t>());
  EXPECT_EQ(tok::sha256_hex(members), golden.at("words_sha256").get<std::string>());
}

TEST(CharactersTest, NormalFormsAreThoseOfTheReference) {
  const nlohmann::json golden = nlohmann::json::parse(tok_test::read_golden("characters.json"));
  const std::pair<const char*, tok::NormalForm> kForms[] = {{"NFC", tok::NormalForm::nfc},
                                                            {"NFD", tok::NormalForm::nfd},
                                                            {"NFKC", tok::NormalForm::nfkc},
                                                            {"NFKD", tok::NormalForm::nfkd}};
  for (const auto& [name, form] : kForms) {
    std::string all, normal;
    each_code_point([&, form = form](char32_t c) {
      std::string text = "a\u0315";
      tok::append_utf8(text, c);
      text += "\u0327\u0301b";
      tok::normalize(text, form, normal);
      all += normal + "\n";
    });
    EXPECT_EQ(tok::sha256_hex(all), golden.at(name).get<std::string>()) << name;
  }
}

std::u32string points(const std::string& text) {
  std::u32string out;
  for (size_t at = 0; at < text.size();) {
    const tok::CodePoint c = tok::decode(text, at);
    out += c.value;
    at += c.length;
  }
  return out;
}

std::string utf8(const std::u32string& text) {
  std::string out;
  for (char32_t c : text) tok::append_utf8(out, c);
  return out;
}

/// The normal form of a text of a few bytes.
std::u32string short_form(const std::u32string& text, tok::NormalForm form) {
  std::string out;
  tok::normalize(utf8(text), form, out);
  return points(out);
}

int combining_class(char32_t c) { return u_getCombiningClass(static_cast<UChar32>(c)); }

/// Decomposes each character by itself, and puts marks in order by exchanging neighbours.
std::u32string plain_decomposition(const std::u32string& text, bool compatible) {
  std::u32string out;
  for (char32_t c : text) {
    for (char32_t part : short_form(std::u32string(1, c),
                                    compatible ? tok::NormalForm::nfkd : tok::NormalForm::nfd)) {
      out += part;
      for (size_t i = out.size() - 1; i > 0 && combining_class(out[i]) != 0 &&
                                      combining_class(out[i - 1]) > combining_class(out[i]);
           --i) {
        std::swap(out[i - 1], out[i]);
      }
    }
  }
  return out;
}

/// Composes pair by pair: UAX #15, D117.
std::u32string plain_composition(const std::u32string& text) {
  constexpr size_t kNone = static_cast<size_t>(-1);
  std::u32string out;
  size_t starter = kNone;
  int last = -1;  // class of the last mark behind the starter
  for (char32_t c : text) {
    const int its_class = combining_class(c);
    if (starter != kNone && last < its_class) {
      const std::u32string pair = short_form({out[starter], c}, tok::NormalForm::nfc);
      if (pair.size() == 1) {
        out[starter] = pair[0];
        continue;
      }
    }
    if (its_class == 0) starter = out.size();
    last = its_class == 0 ? -1 : its_class;
    out += c;
  }
  return out;
}

// Long runs are put in order before ICU sees them.
TEST(CharactersTest, LongRunsOfMarksInAnyOrder) {
  // Marks of many classes, those that decompose, and characters that become marks: U+0F73, U+0F75,
  // U+0F81 and, in the compatible forms, U+FF9E.
  const std::u32string kMarks =
      U"\u0323\u0301\u0300\u0308\u0344\u0340\u0345\u0315\u0327\u3099\u093C\u0F71\u0F72\u0F73\u0F75"
      U"\u0F81\uFF9E\u05B0\u0338";
  const std::u32string kStarters = U"aeU\u1EA1\u00E9\u304B\u03C9\uFB01";
  uint32_t state = 1;
  const auto random = [&](size_t below) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % below;
  };
  for (int i = 0; i < 60; ++i) {
    std::u32string text;
    for (size_t runs = 1 + random(3); runs > 0; --runs) {
      if (random(4) != 0) text += kStarters[random(kStarters.size())];
      const size_t kinds = 2 + random(kMarks.size() - 2), first = random(kMarks.size());
      for (size_t n = random(900); n > 0; --n) {
        text += kMarks[(first + random(kinds)) % kMarks.size()];
      }
    }
    for (const bool compatible : {false, true}) {
      const std::u32string decomposed = plain_decomposition(text, compatible);
      std::string out;
      tok::normalize(utf8(text), compatible ? tok::NormalForm::nfkd : tok::NormalForm::nfd, out);
      ASSERT_EQ(points(out), decomposed) << i << compatible;
      tok::normalize(utf8(text), compatible ? tok::NormalForm::nfkc : tok::NormalForm::nfc, out);
      ASSERT_EQ(points(out), plain_composition(decomposed)) << i << compatible;
    }
  }
}

// A run is put in order before its characters are decomposed: their parts have the same class.
TEST(CharactersTest, AMarkDecomposesIntoMarksOfItsClass) {
  each_code_point([](char32_t c) {
    if (combining_class(c) == 0) return;
    for (const tok::NormalForm form : {tok::NormalForm::nfd, tok::NormalForm::nfkd}) {
      for (char32_t part : short_form(std::u32string(1, c), form)) {
        ASSERT_EQ(combining_class(part), combining_class(c)) << static_cast<uint32_t>(c);
      }
    }
  });
}

}  // namespace
