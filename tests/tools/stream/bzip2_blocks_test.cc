// SPDX-License-Identifier: MIT
// Parallel bzip2 against libbz2's own: one stream and many, any portion, any damage.

#include "tools/stream/bzip2_blocks.h"

#include <bzlib.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tools/stream/bzip2_decoder.h"

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

TEST(Bzip2Blocks, StreamsEndAnywhereInAPortion) {
  std::string input;
  std::string text;
  for (unsigned i = 0; i < 60; ++i) {
    const std::string part = noise(1 + i * 37 % 90, i);
    input += compressed(part);
    text += part;
  }
  for (size_t portion = 1; portion < 40; ++portion) {
    EXPECT_EQ(decoded(input, portion), text) << portion;
  }
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

std::vector<Bzip2Block> blocks_of(std::string_view packed) {
  Bzip2Splitter splitter;
  std::vector<Bzip2Block> blocks;
  splitter.feed(packed, blocks);
  splitter.finish(blocks);
  return blocks;
}

// Both ways of reading symbols, as far as this processor has them.
std::vector<Bzip2SymbolReader> symbol_readers() {
  return {read_symbols_plainly, best_symbol_reader()};
}

TEST(Bzip2Blocks, OwnDecoderEqualsLibbz2) {
  std::mt19937 random(7);
  std::string bytes(70000, '\0');  // far moves to front, codes of all lengths
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>(random() % 64 == 0 ? random() : i / 300);
  std::string periodic;  // its cycle is shorter than the block
  for (int i = 0; i < 3000; ++i) periodic += "a line again and again\n";
  std::vector<std::string> texts = {"a",
                                    "aaaa",
                                    "aaaaa",
                                    "abababababab",
                                    bytes,
                                    periodic,
                                    std::string(3, 'b') + "a",
                                    std::string(259, 'c'),
                                    std::string(260, 'c'),
                                    std::string(300000, '\0'),
                                    noise(250000, 1),
                                    std::string(100, 'x') + noise(1000, 2)};
  for (int i = 0; i < 40; ++i) {  // few letters, runs of all lengths
    std::string text;
    const size_t letters = 1 + random() % 6;
    const size_t size = random() % 150000;
    while (text.size() < size) {
      text.append(random() % 9 == 0 ? random() % 600 : 1 + random() % 6,
                  static_cast<char>('a' + random() % letters));
    }
    texts.push_back(text);
  }
  for (const Bzip2SymbolReader reader : symbol_readers()) {
    Bzip2Decoder decoder(reader);
    for (const std::string& text : texts) {
      for (const int level : {1, 9}) {
        std::string whole;
        for (const Bzip2Block& block : blocks_of(compressed(text, level))) {
          std::string out;
          bool over_limit = false;  // nothing here needs libbz2
          ASSERT_TRUE(decoder.decode(block, std::string::npos, out, over_limit));
          EXPECT_EQ(out, decode_block(block).bytes);
          whole += out;
        }
        EXPECT_EQ(whole, text);
      }
    }
  }
}

TEST(Bzip2Blocks, OwnDecoderRefusesDamageAsLibbz2Does) {
  std::mt19937 random(11);
  const Bzip2Block block = blocks_of(compressed(noise(3000, 3) + std::string(500, 'z'), 1)).at(0);
  for (int i = 0; i < 3000; ++i) {
    Bzip2Block damaged = block;
    const size_t hits = 1 + random() % 3;
    for (size_t k = 0; k < hits; ++k) {
      char& byte = damaged.bits[random() % (i % 2 == 0 ? 300 : damaged.bits.size())];
      byte = static_cast<char>(byte ^ 1 << random() % 8);
    }
    if (i % 7 == 0) damaged.num_bits -= static_cast<int64_t>(random() % 100);
    damaged.bits.resize(static_cast<size_t>((damaged.num_bits + 7) / 8));
    for (const Bzip2SymbolReader reader : symbol_readers()) {
      Bzip2Decoder decoder(reader);
      bool over_limit = false;
      std::string bytes;
      if (decoder.decode(damaged, std::string::npos, bytes, over_limit)) {
        EXPECT_EQ(bytes, decode_block(damaged).bytes);
      }
    }
  }
}

// The sum catches nearly all damage, so what comes before it is compared without.
TEST(Bzip2Blocks, SymbolReadersAgreeOnDamage) {
  std::mt19937 random(13);
  std::string text = noise(3000, 3) + std::string(500, 'z');
  for (size_t i = 0; i < 256; ++i) text.insert(random() % text.size(), 1, static_cast<char>(i));
  const Bzip2Block block = blocks_of(compressed(text, 1)).at(0);
  constexpr size_t kMost = 100000, kBeyond = 256;
  for (int i = 0; i < 3000; ++i) {
    std::string bits = block.bits;
    char& byte = bits[random() % bits.size()];
    byte = static_cast<char>(byte ^ 1 << random() % 8);
    const size_t length = bits.size();
    bits.append(kBeyond, '\0');
    const char* const end = bits.data() + length;
    std::vector<std::string> results;
    for (const Bzip2SymbolReader reader : symbol_readers()) {
      Bzip2Bits from(bits.data());
      Bzip2Header header;
      if (!header.read(from, end)) continue;
      std::string room(kMost + Bzip2Bytes::kSlack, '\0');
      Bzip2Bytes out{.bytes = reinterpret_cast<uint8_t*>(room.data()), .most = kMost};
      std::string result = "refused";
      if (reader(from, end, header, out)) {
        result = room.substr(0, out.size) + std::to_string(from.taken(bits.data()));
        for (const uint32_t count : out.counts) result += " " + std::to_string(count);
      }
      results.push_back(result);
    }
    for (const std::string& result : results) ASSERT_EQ(result, results.front()) << i;
  }
}

TEST(Bzip2Blocks, LimitIsOfWhatIsUnpacked) {
  const Bzip2Block block = blocks_of(compressed(std::string(5000000, 'a'), 9)).at(0);
  Bzip2Decoder decoder;
  EXPECT_TRUE(decode_block(block, 4000000, decoder).over_limit);
  EXPECT_TRUE(decode_block(block, 5000000, decoder).ok);
  EXPECT_TRUE(decode_block(block, 4000000).over_limit);
}

}  // namespace
}  // namespace stream
