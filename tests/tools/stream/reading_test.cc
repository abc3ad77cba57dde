// SPDX-License-Identifier: MIT
// Which files the flags name, and the line ends before a place in a file.
#include "tools/stream/reading.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/own.h"

namespace stream {
namespace {

using testing::ElementsAre;

class InputsTest : public testing::Test {
 protected:
  void SetUp() override {
    before_ = std::filesystem::current_path();
    std::filesystem::current_path(own_.path());
    for (const char* name : {"b.txt", "a.txt", "c.json", "d,e", "f[1]"}) std::ofstream(name) << "x";
  }
  void TearDown() override { std::filesystem::current_path(before_); }

  static std::vector<std::string> inputs(std::vector<std::string> flag,
                                         std::vector<std::string> operands = {}) {
    ReadingOptions options;
    options.input = std::move(flag);
    cli::Parsed parsed;
    parsed.operands = std::move(operands);
    try {
      return inputs_of(options, parsed);
    } catch (const cli::UsageError& error) {
      return {error.what()};
    }
  }

 private:
  tests::OwnFolder own_;
  std::filesystem::path before_;
};

TEST_F(InputsTest, APatternOrAListWhereNoFileHasTheName) {
  EXPECT_THAT(inputs({"a.txt"}, {"c.json"}), ElementsAre("a.txt", "c.json"));
  EXPECT_THAT(inputs({"*.txt"}), ElementsAre("a.txt", "b.txt"));
  EXPECT_THAT(inputs({"?.txt", "[c]*"}), ElementsAre("a.txt", "b.txt", "c.json"));
  EXPECT_THAT(inputs({"b.txt,a.txt"}), ElementsAre("b.txt", "a.txt"));
  EXPECT_THAT(inputs({",b.txt,,a.txt,"}), ElementsAre("b.txt", "a.txt"));
  // A file is itself, whatever its name; a pattern without a match stays, to be named as missing.
  EXPECT_THAT(inputs({"d,e"}), ElementsAre("d,e"));
  EXPECT_THAT(inputs({"f[1]"}), ElementsAre("f[1]"));
  EXPECT_THAT(inputs({"*.gz"}), ElementsAre("*.gz"));
  EXPECT_THAT(inputs({"none"}), ElementsAre("none"));
  EXPECT_THAT(inputs({"x*,b.txt"}), ElementsAre("x*", "b.txt"));
}

TEST_F(InputsTest, StandardInputIsReadOnce) {
  EXPECT_THAT(inputs({}), ElementsAre("-"));
  EXPECT_THAT(inputs({"-"}), ElementsAre("-"));
  EXPECT_THAT(inputs({"a.txt"}, {"-"}), ElementsAre("a.txt", "-"));
  EXPECT_THAT(inputs({"-"}, {"-"}), ElementsAre("standard input is named twice"));
}

TEST(CountEnds, OfEachFraming) {
  const tests::OwnFolder own;
  const std::string path = own / "f";
  const std::string text("a\nb\r\nc\rd\r\r\n\0e\0\n", 16);
  std::ofstream(path, std::ios::binary) << text;
  // Of the text, and of each of its beginnings: by one byte after the other.
  int64_t lines = 0, nuls = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i > 0) {
      // A carriage return counts at once, but with a line feed behind it only together with that.
      lines += text[i - 1] == '\n' || (text[i - 1] == '\r' && text[i] != '\n');
      nuls += text[i - 1] == '\0';
    }
    const int64_t bytes = static_cast<int64_t>(i);
    EXPECT_EQ(count_ends(path, bytes, Framing::lines), lines) << i;
    EXPECT_EQ(count_ends(path, bytes, Framing::nul), nuls) << i;
  }
  EXPECT_EQ(lines, 6);
  EXPECT_EQ(count_ends(path, 1000, Framing::lines), lines) << "the file is shorter";
}

}  // namespace
}  // namespace stream
