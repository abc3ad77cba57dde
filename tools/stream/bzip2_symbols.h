// SPDX-License-Identifier: MIT
// First half of decoding a bzip2 block: its header, prefix codes and moves to front, which give the
// block's bytes in the order of their contexts. The second half is bzip2_decoder.h.
// The plain reader is the reference; bzip2_symbols_x86.cc reads the same without branches that a
// processor cannot predict. Source of the layout: the bzip2 1.0 sources, decompress.c.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace stream {

/// Reads bits from the front; after refill() at least 56 are available.
class Bzip2Bits {
 public:
  /// refill() reads up to 8 bytes past those taken.
  explicit Bzip2Bits(const char* bytes) : next_(bytes) {}

  void refill() {
    uint64_t word;
    std::memcpy(&word, next_, sizeof word);
    held_ |= __builtin_bswap64(word) >> count_;
    next_ += (63 - count_) >> 3;
    count_ |= 56;
  }
  uint32_t peek(int n) const { return static_cast<uint32_t>(held_ >> (64 - n)); }
  void drop(int n) {
    held_ <<= n;
    count_ -= n;
  }
  uint32_t take(int n) {
    refill();
    const uint32_t value = peek(n);
    drop(n);
    return value;
  }
  /// Number of leading set bits among the available ones.
  int ones() const { return std::countl_one(held_); }
  /// Number of bits taken, counted from `bytes`.
  int64_t taken(const char* bytes) const { return (next_ - bytes) * 8 - count_; }
  /// Whether bytes beyond `end` were taken.
  bool beyond(const char* end) const { return next_ > end + sizeof held_; }

 private:
  const char* next_;
  uint64_t held_ = 0;
  int count_ = 0;
};

/// A canonical prefix code: short codes by a table, longer ones by comparing.
class Bzip2Code {
 public:
  static constexpr int kLongest = 20;  // bits
  static constexpr size_t kMostSymbols = 258;

  /// Lengths are 1 to kLongest. False if there are more codes than these lengths allow.
  bool build(std::span<const uint8_t> lengths);

  /// The next symbol; kMostSymbols if the bits are no code. kLongest bits must be available.
  uint32_t read(Bzip2Bits& bits) const {
    const uint32_t entry = table_[bits.peek(kTableBits)];
    if (entry != 0) [[likely]] {
      bits.drop(static_cast<int>(entry & 31));
      return entry >> 5;
    }
    const Long code = find_long(bits.peek(kLongest));
    bits.drop(code.length);
    return code.symbol;
  }

 private:
  static constexpr int kTableBits = 11;
  struct Long {
    uint32_t symbol;
    int length;
  };
  Long find_long(uint32_t bits) const;  // by value, so that a reader's `bits` stay in registers

  std::array<uint16_t, size_t{1} << kTableBits> table_;  // symbol, and five bits of length
  std::array<uint32_t, kLongest + 1> first_{}, start_{}, limit_{};
  std::array<uint16_t, kMostSymbols> symbols_{};
};

/// The part of a block before the symbols.
struct Bzip2Header {
  static constexpr size_t kMostTables = 6;
  static constexpr size_t kGroup = 50;  // symbols under one selector

  uint32_t sum = 0;
  uint32_t origin = 0;
  size_t num_symbols = 0;
  std::array<uint8_t, 256> used{};
  std::vector<uint8_t> selectors;
  std::array<Bzip2Code, kMostTables> codes;

  /// False if the header is invalid or of the old, randomised kind. `end` is the end of the bytes;
  /// 256 bytes past it may be read.
  bool read(Bzip2Bits& bits, const char* end);
};

/// A block's bytes by context, and how many there are of each.
struct Bzip2Bytes {
  static constexpr size_t kSlack = 4096;  // bytes past `most` that a reader may write

  uint8_t* bytes = nullptr;
  size_t most = 0;
  size_t size = 0;
  std::array<uint32_t, 256> counts{};
};

/// Reads symbols up to the block's end. False if they are invalid.
using Bzip2SymbolReader = bool (*)(Bzip2Bits& bits, const char* end, const Bzip2Header& header,
                                   Bzip2Bytes& out);

bool read_symbols_plainly(Bzip2Bits& bits, const char* end, const Bzip2Header& header,
                          Bzip2Bytes& out);

/// The fastest reader that this processor can run; the plain one with TOK_FORCE_SCALAR=1.
Bzip2SymbolReader best_symbol_reader();

}  // namespace stream
