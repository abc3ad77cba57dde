// SPDX-License-Identifier: MIT
// Tests of cleaning: what each step changes and, just as important, what it leaves alone.
// Expected texts are written out; the mojibake cases are built by misreading real text.
#include "tools/extract/clean.h"

#include <gtest/gtest.h>

namespace extract {
namespace {

std::string cleaned(CleanOptions options, std::string text) {
  std::string scratch;
  clean(options, text, scratch);
  return text;
}

/// `text`'s bytes read as Latin-1 and written as UTF-8.
std::string misread(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      out += c;
    } else {
      out += static_cast<char>(0xC0 | byte >> 6);
      out += static_cast<char>(0x80 | (byte & 0x3F));
    }
  }
  return out;
}

const CleanOptions kRepair = {.repair_mojibake = true};

TEST(Mojibake, LatinAndWindowsReadings) {
  const std::string text = "café – “naïve” Привет 東京 😀 €5";
  EXPECT_EQ(cleaned(kRepair, misread(text)), text);
  EXPECT_EQ(cleaned(kRepair, misread(misread(text))), text);
  EXPECT_EQ(cleaned(kRepair, "donâ€™t Ã¼ber â€œxâ€\u009d"), "don’t über “x”");
}

TEST(Mojibake, OtherTextStays) {
  for (const char* text : {"café", "NÃO", "São Paulo", "Ã", "Ã la", "Â", "ÀÉÎ", "1 €", ""}) {
    EXPECT_EQ(cleaned(kRepair, text), text);
  }
  std::string text = "plain";
  std::string scratch;
  EXPECT_FALSE(repair_mojibake(text, scratch));
}

TEST(Control, RemovedOrSpaces) {
  const std::string text = std::string("a") + '\0' +
                           "b\tc\nd\re\x7f"
                           "f\xc2\x85"
                           "g\xc2\xa0h\x1b";
  EXPECT_EQ(cleaned({.control = ControlCharacters::keep}, text), text);
  EXPECT_EQ(cleaned({.control = ControlCharacters::remove}, text),
            "ab\tc\nd\ref"
            "g\xc2\xa0h");
  EXPECT_EQ(cleaned({.control = ControlCharacters::space}, text), "a b\tc\nd\re f g\xc2\xa0h ");
}

TEST(Normalize, Forms) {
  EXPECT_EQ(cleaned({.normalize = Normalize::nfc}, "e\u0301 \u212b ﬁ"), "é Å ﬁ");
  EXPECT_EQ(cleaned({.normalize = Normalize::nfkc}, "e\u0301 ﬁ ①"), "é fi 1");
  EXPECT_EQ(cleaned({}, "e\u0301"), "e\u0301");
}

TEST(Whitespace, TrimAndCollapse) {
  const std::string text = " \u3000\n a \t b \r\n\r\n\n\n  c\r d \u00a0\n";
  EXPECT_EQ(cleaned({.whitespace = Whitespace::keep}, text), text);
  EXPECT_EQ(cleaned({.whitespace = Whitespace::trim}, text), "a \t b \r\n\r\n\n\n  c\r d");
  EXPECT_EQ(cleaned({.whitespace = Whitespace::collapse}, text), "a b\n\nc\nd");
  EXPECT_EQ(cleaned({.whitespace = Whitespace::collapse}, " \n\t "), "");
  EXPECT_EQ(cleaned({.whitespace = Whitespace::trim}, "\u2003"), "");
}

TEST(Characters, AreCodePoints) {
  EXPECT_EQ(count_characters("aé東😀"), 4);
  EXPECT_EQ(count_characters(""), 0);
}

}  // namespace
}  // namespace extract
