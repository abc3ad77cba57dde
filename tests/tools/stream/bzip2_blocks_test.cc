// SPDX-License-Identifier: MIT
// Parallel bzip2 against libbz2's own: one stream and many, any portion, any damage.

#include "tools/stream/bzip2_blocks.h"

#include <bzlib.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace stream {
namespace {

std::string compressed(std::string_view text, int level = 1) {
  std::string out(text.size() + text.size() / 50 + 700, '\0');
  unsigned size = static_cast<unsigned>(out.size());
  std::string input(text);
  EXPECT_EQ(BZ2_bzBuffToBuffCompress(out.data(), &size, input.data(),
                                     static_cast<unsigned>(input.size()), level, 0, 0),
            BZ_OK);
  out.resize(size);
  return out;
}

std::string decoded(std::string_view input, size_t portion) {
  Bzip2Splitter splitter;
  Bzip2Joiner joiner;
  std::vector<Bzip2Block> blocks;
  std::string out;
  const auto drain = [&] {
    for (Bzip2Block& block : blocks) joiner.add(decode_block(std::move(block)), out);
    blocks.clear();
  };
  for (size_t i = 0; i < input.size(); i += portion) {
    splitter.feed(input.substr(i, portion), blocks);
    drain();
  }
  splitter.finish(blocks);
  drain();
  joiner.finish();
  return out;
}

std::string noise(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>('a' + random() % 20);
  return text;
}

TEST(Bzip2Blocks, EqualsLibbz2) {
  const std::string a = noise(450000, 1);
  const std::string zeros(3000000, '\0');  // one block of 100,000 bytes expands to megabytes
  for (const std::string& text : {std::string(), std::string("x"), a, zeros, a + zeros + a}) {
    const std::string input = compressed(text);
    for (const size_t portion : {size_t{1} << 20, size_t{4093}, size_t{1}}) {
      if (portion == 1 && input.size() > 100000) continue;
      EXPECT_EQ(decoded(input, portion), text) << input.size() << " by " << portion;
    }
  }
}

TEST(Bzip2Blocks, ManyStreams) {
  std::string input;
  std::string text;
  for (unsigned i = 0; i < 40; ++i) {
    const std::string part = noise(i * 7919 % 200000, i);
    input += compressed(part, 1 + static_cast<int>(i % 9));
    text += part;
  }
  EXPECT_EQ(decoded(input, 10007), text);
}

TEST(Bzip2Blocks, DamageIsNamed) {
  const std::string text = noise(350000, 5);
  const std::string input = compressed(text);
  EXPECT_THROW(decoded("", 1), Bzip2Error);
  EXPECT_THROW(decoded("BZh", 1), Bzip2Error);
  EXPECT_THROW(decoded("PK-not-bzip2", 5), Bzip2Error);
  EXPECT_THROW(decoded(input + "x", 4096), Bzip2Error);
  EXPECT_THROW(decoded(input + "trailing garbage", 4096), Bzip2Error);
  for (size_t cut = 1; cut < input.size(); cut += 9973)
    EXPECT_THROW(decoded(input.substr(0, cut), 4096), Bzip2Error);
  EXPECT_THROW(decoded(input.substr(0, input.size() - 1), 4096), Bzip2Error);
  std::mt19937 random(7);
  for (int i = 0; i < 60; ++i) {
    std::string flipped = input;
    const size_t bit = random() % (flipped.size() * 8);
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    try {
      // The bits that pad the last byte carry nothing; any other must be seen.
      EXPECT_EQ(decoded(flipped, 4096), text) << bit;
      EXPECT_EQ(bit / 8, flipped.size() - 1);
    } catch (const Bzip2Error& error) {
      EXPECT_THAT(error.what(), testing::StartsWith("byte "));
    }
  }
}

}  // namespace
}  // namespace stream
