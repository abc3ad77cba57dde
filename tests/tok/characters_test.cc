// SPDX-License-Identifier: MIT
// Every code point alone: whether it is a word's character to added tokens, and what the normal
// forms make of it between others. Held to digests of Hugging Face's tokenizers
// (tests/reference/make_character_goldens.py), whose normal forms end with Unicode 9.0.
#include <gtest/gtest.h>

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

}  // namespace
