// SPDX-License-Identifier: MIT
// Parallel bzip2 against libbz2's own: one stream and many, any portion, any damage.

#include "tools/stream/bzip2_blocks.h"

#include <bzlib.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/sanitized.h"
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
      // The bits that pad the last byte mean nothing; a change of any other bit must be detected.
      EXPECT_EQ(decoded(flipped, 4096), text) << bit;
      EXPECT_EQ(bit / 8, flipped.size() - 1);
    } catch (const Bzip2Error& error) {
      EXPECT_THAT(error.what(), testing::StartsWith("byte "));
    }
  }
}

// The sum over all blocks stands behind the last: each of its bits is held to the blocks' own sums.
TEST(Bzip2Blocks, EveryBitOfTheCombinedSumIsSeen) {
  const std::string text = noise(250000, 3);  // three blocks
  const std::string input = compressed(text);
  const auto bit_of = [&](size_t i) { return input[i / 8] >> (7 - i % 8) & 1; };
  size_t end = input.size() * 8;  // behind the sum: at most seven bits of nothing follow
  const auto ends_stream = [&](size_t at) {
    uint64_t mark = 0;
    for (size_t i = 0; i < 48; ++i) mark = mark << 1 | static_cast<uint64_t>(bit_of(at + i));
    return mark == 0x177245385090;
  };
  while (!ends_stream(end - 80)) ASSERT_GT(--end, input.size() * 8 - 8);
  for (size_t bit = end - 32; bit < end; ++bit) {
    std::string flipped = input;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << (7 - bit % 8));
    EXPECT_THROW(decoded(flipped, 4096), Bzip2Error) << bit;
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

TEST(Bzip2Blocks, WhatStandsBehindAnEndIsNotLost) {
  const std::string text = noise(3000, 4);
  const std::string packed = compressed(text);
  Bzip2Block block = blocks_of(packed).at(0);
  EXPECT_TRUE(decode_block(block).ok);
  // The stream's end and sum, which is the block's, then the first bits of something.
  block.bits = packed.substr(4) + "more";
  block.num_bits = static_cast<int64_t>(block.bits.size()) * 8;
  EXPECT_FALSE(decode_block(block).ok);
  // Garbage and another stream follow; the first one's sum is not checked inside a range.
  Bzip2Splitter splitter;
  splitter.start_inside(0);
  Bzip2Joiner joiner;
  joiner.start_inside();
  std::vector<Bzip2Block> blocks;
  splitter.feed(packed + "garbage" + packed, blocks);
  splitter.finish(blocks);
  std::string out;
  const auto join = [&] {
    for (Bzip2Block& found : blocks) joiner.add(decode_block(std::move(found)), out);
    joiner.finish();
  };
  EXPECT_THROW(join(), Bzip2Error) << out.size();
}

// Bits, high ones first.
struct Bits {
  std::string bytes;
  int64_t size = 0;
  void put(uint64_t value, int count) {
    for (int i = count - 1; i >= 0; --i, ++size) {
      if (size % 8 == 0) bytes.push_back(0);
      if (value >> i & 1) bytes.back() = static_cast<char>(bytes.back() | 0x80 >> size % 8);
    }
  }
};

// Makes blocks that no compressor makes: bytes in any order, any origin, any codes and selectors,
// mostly valid.
class Crafter {
 public:
  explicit Crafter(unsigned seed) : random_(seed) {}

  Bzip2Block block() {
    bits_ = {};
    bits_.put(0x314159265359, 48);
    bits_.put(0, 32);
    bits_.put(rarely(), 1);  // randomised
    const std::vector<uint32_t> symbols = bytes_by_context();
    const size_t groups =
        (symbols.size() + 49) / 50 + (below(4) == 0 ? below(30) : 0) + (rarely() ? 18002 : 0);
    num_tables_ = rarely() ? below(8) : 2 + below(5);
    bits_.put(num_tables_, 3);
    const std::vector<size_t> selectors = put_selectors(std::max<size_t>(groups, !rarely()));
    std::vector<std::vector<uint32_t>> codes, lengths;
    for (size_t t = 0; t < num_tables_; ++t) {
      lengths.push_back(code_lengths(letters_ + 2));
      codes.push_back(codes_of(lengths.back()));
    }
    for (size_t i = 0; i < symbols.size() && num_tables_ > 0; ++i) {
      const size_t table = selectors[std::min(i / 50, selectors.size() - 1)];
      bits_.put(codes[table][symbols[i]], static_cast<int>(lengths[table][symbols[i]]));
    }
    if (rarely()) bits_.put(below(256), 8);
    Bzip2Block made;
    made.bits = bits_.bytes;
    made.num_bits = bits_.size;
    made.level = '1';
    return made;
  }

 private:
  size_t below(size_t end) { return random_() % end; }
  bool rarely() { return below(60) == 0; }

  // Origin, used bytes, and the symbols of a text that is already by context.
  std::vector<uint32_t> bytes_by_context() {
    letters_ = below(8) == 0 ? 1 + below(256) : 1 + below(5);
    const size_t runs = rarely() ? 0 : 1 + below(200);
    std::vector<uint32_t> symbols;
    size_t size = 0;
    for (size_t i = 0; i < runs; ++i) {
      if (letters_ > 1) symbols.push_back(2 + static_cast<uint32_t>(below(letters_ - 1)));
      size_t run = below(3) == 0 ? below(9) : below(900) == 0 ? below(90000) : letters_ == 1;
      size += run + (letters_ > 1);
      for (; run > 0; run = (run - 1) / 2) symbols.push_back((run - 1) % 2);
    }
    if (!rarely()) symbols.push_back(static_cast<uint32_t>(letters_) + 1);
    bits_.put(rarely() ? below(1 << 24) : below(std::max<size_t>(size, 1)), 24);
    uint32_t used = 0;
    for (uint32_t i = 0; i < 16; ++i) used |= uint32_t{i * 16 < letters_} << (15 - i);
    bits_.put(used, 16);
    for (size_t i = 0; i < letters_; i += 16) {
      bits_.put((0xFFFF0000 >> std::min<size_t>(16, letters_ - i)) & 0xFFFF, 16);
    }
    return symbols;
  }

  std::vector<size_t> put_selectors(size_t count) {
    std::vector<size_t> order = {0, 1, 2, 3, 4, 5, 6, 7}, selectors;
    bits_.put(count, 15);
    for (size_t i = 0; i < count; ++i) {
      const size_t at = below(std::max<size_t>(num_tables_, 1)) + (rarely() && rarely());
      bits_.put((uint32_t{1} << (at + 1)) - 2, static_cast<int>(at) + 1);
      std::rotate(order.begin(), order.begin() + static_cast<long>(at),
                  order.begin() + static_cast<long>(at) + 1);
      selectors.push_back(std::min(order[0], std::max<size_t>(num_tables_, 1) - 1));
    }
    if (selectors.empty()) selectors.push_back(0);
    return selectors;
  }

  // Depths of a random tree's leaves, sometimes of fewer or more than one tree; and writes them.
  std::vector<uint32_t> code_lengths(size_t count) {
    std::vector<uint32_t> lengths = {1, 1};
    while (lengths.size() < count) {
      uint32_t& split = lengths[below(2) == 0 ? lengths.size() - 1 : below(lengths.size())];
      if (split == 20) continue;
      ++split;
      const uint32_t depth = split;
      lengths.push_back(depth);
    }
    lengths.resize(count);
    std::shuffle(lengths.begin(), lengths.end(), random_);
    if (below(8) == 0) lengths[below(count)] = 1 + static_cast<uint32_t>(below(20));
    uint32_t length = rarely() ? static_cast<uint32_t>(below(32)) : lengths[0];
    bits_.put(length, 5);
    for (const uint32_t wanted : lengths) {
      for (; length != wanted; length += length < wanted ? 1 : -1) {
        bits_.put(length < wanted ? 2 : 3, 2);
      }
      bits_.put(0, 1);
    }
    return lengths;
  }

  static std::vector<uint32_t> codes_of(const std::vector<uint32_t>& lengths) {
    std::vector<uint32_t> codes(lengths.size());
    uint32_t code = 0;
    for (uint32_t length = 1; length <= 20; ++length, code <<= 1) {
      for (size_t i = 0; i < lengths.size(); ++i) {
        if (lengths[i] == length) codes[i] = code++;
      }
    }
    return codes;
  }

  std::mt19937 random_;
  Bits bits_;
  size_t letters_ = 0, num_tables_ = 0;
};

uint32_t sum_of(std::string_view bytes) {
  uint32_t sum = 0xFFFFFFFF;
  for (const char c : bytes) {
    sum ^= static_cast<uint32_t>(static_cast<uint8_t>(c)) << 24;
    for (int i = 0; i < 8; ++i) sum = sum << 1 ^ (sum >> 31 ? 0x04C11DB7 : 0);
  }
  return ~sum;
}

// What libbz2 decodes from a block, whatever its sum is.
std::string unchecked(const Bzip2Block& block) {
  std::string packed = std::string("BZh") + block.level + block.bits + std::string(32, '\0');
  std::string out, portion(4096, '\0');
  bz_stream bz{};
  EXPECT_EQ(BZ2_bzDecompressInit(&bz, 0, 0), BZ_OK);
  bz.next_in = packed.data();
  bz.avail_in = static_cast<unsigned>(packed.size());
  int status = BZ_OK;
  while (status == BZ_OK && (bz.avail_in > 0 || bz.avail_out == 0)) {
    bz.next_out = portion.data();
    bz.avail_out = static_cast<unsigned>(portion.size());
    status = BZ2_bzDecompress(&bz);
    out.append(portion, 0, portion.size() - bz.avail_out);
  }
  BZ2_bzDecompressEnd(&bz);
  return out;
}

// Each block gets the sum of what libbz2 decodes from it, then of what our decoder does, so that
// the sum alone neither refuses nor hides anything.
TEST(Bzip2Blocks, OwnDecoderEqualsLibbz2OnCraftedBlocks) {
  constexpr int kBlocks = rounds(1500);
  Crafter crafter(19);
  std::vector<Bzip2Decoder> decoders;
  for (const Bzip2SymbolReader reader : symbol_readers()) decoders.emplace_back(reader);
  int taken = 0, only_libbz2 = 0;
  for (int i = 0; i < kBlocks; ++i) {
    const Bzip2Block made = crafter.block();
    const uint32_t sum_of_libbz2 = sum_of(unchecked(made));
    for (Bzip2Decoder& decoder : decoders) {
      std::string own;
      bool over_limit = false;
      decoder.decode(made, std::string::npos, own, over_limit);
      for (const uint32_t sum : {sum_of_libbz2, sum_of(own)}) {
        Bzip2Block block = made;
        for (size_t k = 0; k < 4; ++k) block.bits[6 + k] = static_cast<char>(sum >> (24 - 8 * k));
        const DecodedBlock expected = decode_block(block);
        const bool good = decoder.decode(block, std::string::npos, own, over_limit);
        if (good) {
          ASSERT_TRUE(expected.ok) << i;
          ASSERT_EQ(own, expected.bytes) << i;
        }
        taken += good;
        only_libbz2 += expected.ok && !good;
      }
    }
  }
  EXPECT_GT(taken, kBlocks);
  EXPECT_LT(only_libbz2, taken / 10);  // randomised ones, codes that bits do not tell apart
}

// The sum catches nearly all damage, so the checks before it are compared without it.
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
  EXPECT_TRUE(decode_block(block, 4999999, decoder).over_limit);
  EXPECT_TRUE(decode_block(block, 5000000, decoder).ok);
  EXPECT_TRUE(decode_block(block, 5000001, decoder).ok);
  EXPECT_TRUE(decode_block(block, 4000000).over_limit);
}

}  // namespace
}  // namespace stream
