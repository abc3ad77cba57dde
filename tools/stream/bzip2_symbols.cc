// SPDX-License-Identifier: MIT
// Headers, prefix codes, and the plain symbol reader.
#include "tools/stream/bzip2_symbols.h"

namespace stream {
namespace {

bool read_used(Bzip2Bits& bits, Bzip2Header& header) {
  const uint32_t ranges = bits.take(16);
  size_t count = 0;
  for (uint32_t i = 0; i < 16; ++i) {
    if ((ranges >> (15 - i) & 1) == 0) continue;
    const uint32_t members = bits.take(16);
    for (uint32_t j = 0; j < 16; ++j) {
      if (members >> (15 - j) & 1) header.used[count++] = static_cast<uint8_t>(i * 16 + j);
    }
  }
  header.num_symbols = count + 2;
  return count > 0;
}

// A selector is a position in the order of last use.
bool read_selectors(Bzip2Bits& bits, const char* end, size_t num_tables, Bzip2Header& header) {
  constexpr uint32_t kBits = 4;  // of a table's number
  const size_t count = bits.take(15);
  if (count == 0) return false;
  uint32_t order = 0x543210;
  header.selectors.resize(count);
  for (uint8_t& selector : header.selectors) {
    bits.refill();
    const int ones = bits.ones();
    if (ones >= static_cast<int>(num_tables) || bits.beyond(end)) return false;
    bits.drop(ones + 1);
    const uint32_t at = static_cast<uint32_t>(ones) * kBits;
    const uint32_t table = order >> at & 15;
    const uint32_t before = (uint32_t{1} << at) - 1;
    order = (order & ~(before << kBits | 15)) | (order & before) << kBits | table;
    selector = static_cast<uint8_t>(table);
  }
  return true;
}

bool read_codes(Bzip2Bits& bits, const char* end, size_t num_tables, Bzip2Header& header) {
  std::array<uint8_t, Bzip2Code::kMostSymbols> lengths{};
  for (size_t t = 0; t < num_tables; ++t) {
    int length = static_cast<int>(bits.take(5));
    for (size_t s = 0; s < header.num_symbols; ++s) {
      while (true) {
        if (length < 1 || length > Bzip2Code::kLongest || bits.beyond(end)) return false;
        if (bits.take(1) == 0) break;
        length += bits.take(1) == 1 ? -1 : 1;
      }
      lengths[s] = static_cast<uint8_t>(length);
    }
    if (!header.codes[t].build(std::span(lengths).first(header.num_symbols))) return false;
  }
  return true;
}

}  // namespace

bool Bzip2Code::build(std::span<const uint8_t> lengths) {
  std::array<uint32_t, kLongest + 2> counts{};
  for (const uint8_t length : lengths) ++counts[length];
  uint32_t code = 0;
  uint32_t place = 0;
  std::array<uint32_t, kLongest + 2> next{};
  for (size_t length = 1; length <= kLongest; ++length) {
    first_[length] = code;
    start_[length] = place;
    next[length] = place;
    place += counts[length];
    code += counts[length];
    if (code > uint32_t{1} << length) return false;
    limit_[length] = code << (kLongest - static_cast<int>(length));
    code <<= 1;
  }
  table_.fill(0);
  for (size_t s = 0; s < lengths.size(); ++s) {
    const size_t length = lengths[s];
    const uint32_t at = next[length]++;
    symbols_[at] = static_cast<uint16_t>(s);
    if (length > kTableBits) continue;
    const uint32_t value = first_[length] + at - start_[length];
    const size_t shift = kTableBits - length;
    const uint16_t entry = static_cast<uint16_t>(s << 5 | length);
    std::fill_n(table_.begin() + (value << shift), size_t{1} << shift, entry);
  }
  return true;
}

Bzip2Code::Long Bzip2Code::find_long(uint32_t bits) const {
  for (size_t length = kTableBits + 1; length <= kLongest; ++length) {
    if (bits >= limit_[length]) continue;
    const uint32_t value = bits >> (kLongest - static_cast<int>(length));
    return {symbols_[start_[length] + value - first_[length]], static_cast<int>(length)};
  }
  return {kMostSymbols, 0};
}

bool Bzip2Header::read(Bzip2Bits& bits, const char* end) {
  constexpr uint32_t kMarkHigh = 0x314159, kMarkLow = 0x265359;
  if (bits.take(24) != kMarkHigh || bits.take(24) != kMarkLow) return false;
  sum = bits.take(16) << 16;
  sum |= bits.take(16);
  if (bits.take(1) == 1) return false;  // randomised
  origin = bits.take(24);
  if (!read_used(bits, *this)) return false;
  const size_t num_tables = bits.take(3);
  return num_tables >= 2 && num_tables <= kMostTables &&
         read_selectors(bits, end, num_tables, *this) && read_codes(bits, end, num_tables, *this);
}

bool read_symbols_plainly(Bzip2Bits& bits, const char* end, const Bzip2Header& header,
                          Bzip2Bytes& out) {
  std::array<uint8_t, 256> order = header.used;
  const uint32_t last = static_cast<uint32_t>(header.num_symbols) - 1;
  size_t weight = 1;  // of the next digit of a run's length
  out.size = 0;
  out.counts = {};
  const auto put = [&](size_t count) {
    if (count > out.most - out.size) return false;
    std::memset(out.bytes + out.size, order[0], count);
    out.counts[order[0]] += static_cast<uint32_t>(count);
    out.size += count;
    return true;
  };
  for (const uint8_t selector : header.selectors) {
    if (bits.beyond(end)) return false;
    for (size_t i = 0; i < Bzip2Header::kGroup; ++i) {
      bits.refill();
      const uint32_t symbol = header.codes[selector].read(bits);
      if (symbol == last) return out.size > 0;
      if (symbol > last) return false;
      if (symbol <= 1) {
        if (!put(weight << symbol)) return false;
        weight <<= 1;
        continue;
      }
      weight = 1;
      std::rotate(order.begin(), order.begin() + symbol - 1, order.begin() + symbol);
      if (!put(1)) return false;
    }
  }
  return false;
}

}  // namespace stream
