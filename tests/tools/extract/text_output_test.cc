// SPDX-License-Identifier: MIT
// Tests of writing text: escapes byte for byte, the set of hashes, files that are complete or
// absent. What a zstd frame holds is read back by the library itself.
#include "tools/extract/text_output.h"

#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>
#include <set>

#include <gtest/gtest.h>
#include <unistd.h>
#include <zstd.h>

#include "tools/stream/json_string.h"

namespace extract {
namespace {

std::string json(std::string_view text) {
  std::string out;
  append_json_string(text, out);
  return out;
}

TEST(JsonString, EscapesWhatJsonDemandsAndNothingElse) {
  EXPECT_EQ(json("a/b é \x7f \u2028"), "\"a/b é \x7f \u2028\"");
  EXPECT_EQ(json(std::string_view("\"\\\b\f\n\r\t\0\x1f", 9)),
            "\"\\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001f\"");
  EXPECT_EQ(json(""), "\"\"");
}

/// What the reader of JSON makes of a string that is to be escaped is what is written of the
/// string's characters.
TEST(JsonString, IsReadAsItIsWritten) {
  std::mt19937 random(5);
  const std::vector<std::string> parts = {
      "\\n",  "\\\"", "\\\\",           "\\/",     "\\b",    "\\f", "\\r", "\\t", "/",
      "\x7f", "é",    "\\ud83d\\ude00", "\\u2028", "\\uFFFF"};
  const auto read = [](const std::string& line, stream::Spelling spelling) {
    std::string room(line.size() + stream::kRoomSlack, '#');
    char* at = room.data();
    const stream::JsonString string = stream::read_string(line, 0, spelling, at);
    EXPECT_EQ(string.fault, stream::StringFault::none) << line;
    EXPECT_EQ(string.end, line.size()) << line;
    EXPECT_LE(string.text.size(), line.size() - 2) << line;
    return std::string(string.text);
  };
  for (int round = 0; round < 30000; ++round) {
    std::string line = "\"";
    for (size_t i = random() % 5; i > 0; --i) {
      line += std::string(random() % 20, 'x');
      char number[8] = "";
      std::snprintf(number, sizeof number, random() % 2 == 0 ? "\\u%04x" : "\\u%04X",
                    static_cast<unsigned>(random() % 0x90));
      line += random() % 2 == 0 ? parts[random() % parts.size()] : number;
    }
    line += '"';
    const std::string escaped = read(line, stream::Spelling::escaped);
    EXPECT_EQ("\"" + escaped + "\"", json(read(line, stream::Spelling::characters))) << line;
  }
}

TEST(Hash, DiffersWhereTextsDo) {
  std::set<std::pair<uint64_t, uint64_t>> seen;
  size_t texts = 0;
  const auto add = [&](std::string_view text) {
    const Hash128 hash = hash128(text);
    seen.insert({hash.low, hash.high});
    ++texts;
  };
  for (size_t size = 0; size < 200; ++size) add(std::string(size, '\0'));
  for (int i = 0; i < 200000; ++i) add("document " + std::to_string(i));
  for (size_t bit = 0; bit < 800; ++bit) {
    std::string text(100, 'x');
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
    add(text);
  }
  EXPECT_EQ(seen.size(), texts);
  // Each half alone distinguishes texts, too, so they are independent.
  std::set<uint64_t> low;
  std::set<uint64_t> high;
  for (const auto& [l, h] : seen) low.insert(l), high.insert(h);
  EXPECT_EQ(low.size(), texts);
  EXPECT_EQ(high.size(), texts);
}

TEST(HashSet, RemembersAllAndStaysSmall) {
  HashSet set;
  constexpr int kTexts = 300000;
  for (int i = 0; i < kTexts; ++i) EXPECT_TRUE(set.insert(hash128(std::to_string(i))));
  for (int i = 0; i < kTexts; ++i) EXPECT_FALSE(set.insert(hash128(std::to_string(i))));
  EXPECT_LE(set.bytes(), int64_t{48} * kTexts);
  EXPECT_TRUE(set.insert({}));
  EXPECT_FALSE(set.insert({}));
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST(TextOutput, FilesAreThereWhenWhole) {
  const std::string path = testing::TempDir() + "/text_output_" + std::to_string(getpid());
  {
    TextOutput unfinished({.path = path});
    unfinished.write("x");
    EXPECT_NE(access(path.c_str(), F_OK), 0);
  }
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  TextOutput output({.path = path});
  output.write("a");
  output.write("b\n");
  output.finish();
  EXPECT_EQ(read_file(path), "ab\n");
  EXPECT_ANY_THROW(TextOutput({.path = path}));
  std::remove(path.c_str());
}

TEST(TextOutput, ZstdIsOneFrameWithAChecksum) {
  const std::string path = testing::TempDir() + "/text_output_zst_" + std::to_string(getpid());
  std::string text;
  for (int i = 0; i < 100000; ++i) text += std::to_string(i * 7919);
  TextOutput output({.path = path, .zstd = true});
  for (size_t at = 0; at < text.size(); at += 1000)
    output.write(std::string_view(text).substr(at, 1000));
  output.finish();
  std::string packed = read_file(path);
  std::string back(text.size() + 1, '\0');
  back.resize(ZSTD_decompress(back.data(), back.size(), packed.data(), packed.size()));
  EXPECT_TRUE(back == text);
  packed.back() = static_cast<char>(packed.back() ^ 1);
  EXPECT_TRUE(
      ZSTD_isError(ZSTD_decompress(back.data(), back.size(), packed.data(), packed.size())));
  std::remove(path.c_str());
}

}  // namespace
}  // namespace extract
