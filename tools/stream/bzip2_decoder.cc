// SPDX-License-Identifier: MIT
// Room: tools/stream. Bits, prefix codes, moves to front; the walk; run lengths and the sum.
#include "tools/stream/bzip2_decoder.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

namespace stream {
namespace {

constexpr int kLongestCode = 20;
constexpr int kTableBits = 11;
constexpr size_t kGroup = 50;  // symbols under one selector
constexpr size_t kMostTables = 6;
constexpr size_t kMostSymbols = 258;
constexpr size_t kReadBeyond = 256;  // bytes behind the block that a group of symbols may load
constexpr size_t kAhead = 8;         // bytes that refill() may have passed beyond those taken

/// Bits from the front, at least 56 of them at hand after refill().
class Bits {
 public:
  explicit Bits(const char* bytes) : next_(bytes) {}

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
  /// Bits taken, of those that begin at `bytes`.
  int64_t taken(const char* bytes) const { return (next_ - bytes) * 8 - count_; }
  const char* next() const { return next_; }

 private:
  const char* next_;
  uint64_t held_ = 0;
  int count_ = 0;
};

/// A canonical prefix code: short codes by a table, longer ones by comparing.
class Code {
 public:
  bool build(std::span<const uint8_t> lengths) {
    std::array<uint32_t, kLongestCode + 2> counts{};
    for (const uint8_t length : lengths) ++counts[length];
    uint32_t code = 0;
    uint32_t place = 0;
    std::array<uint32_t, kLongestCode + 2> next{};
    for (size_t length = 1; length <= kLongestCode; ++length) {
      first_[length] = code;
      start_[length] = place;
      next[length] = place;
      place += counts[length];
      code += counts[length];
      if (code > uint32_t{1} << length) return false;
      limit_[length] = code << (kLongestCode - static_cast<int>(length));
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

  /// The next symbol; kMostSymbols where the bits are none.
  uint32_t read(Bits& bits) const {
    const uint32_t entry = table_[bits.peek(kTableBits)];
    if (entry != 0) [[likely]] {
      bits.drop(static_cast<int>(entry & 31));
      return entry >> 5;
    }
    const uint32_t seen = bits.peek(kLongestCode);
    for (size_t length = kTableBits + 1; length <= kLongestCode; ++length) {
      if (seen >= limit_[length]) continue;
      bits.drop(static_cast<int>(length));
      const uint32_t value = seen >> (kLongestCode - static_cast<int>(length));
      return symbols_[start_[length] + value - first_[length]];
    }
    return kMostSymbols;
  }

 private:
  std::array<uint16_t, size_t{1} << kTableBits> table_;
  std::array<uint32_t, kLongestCode + 1> first_{}, start_{}, limit_{};
  std::array<uint16_t, kMostSymbols> symbols_{};
};

/// What stands before the symbols.
struct Header {
  uint32_t sum = 0;
  uint32_t origin = 0;
  size_t num_symbols = 0;
  std::array<uint8_t, 256> used{};
  std::vector<uint8_t> selectors;
  std::array<Code, kMostTables> codes;
};

bool read_used(Bits& bits, Header& header) {
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

bool read_selectors(Bits& bits, const char* end, size_t num_tables, Header& header) {
  const size_t count = bits.take(15);
  if (count == 0) return false;
  std::array<uint8_t, kMostTables> order = {0, 1, 2, 3, 4, 5};
  header.selectors.resize(count);
  for (uint8_t& selector : header.selectors) {
    size_t ones = 0;
    while (bits.take(1) == 1) {
      if (++ones >= num_tables) return false;
    }
    if (bits.next() > end + kAhead) return false;
    selector = order[ones];
    std::memmove(&order[1], &order[0], ones);
    order[0] = selector;
  }
  return true;
}

bool read_codes(Bits& bits, const char* end, size_t num_tables, Header& header) {
  std::array<uint8_t, kMostSymbols> lengths{};
  for (size_t t = 0; t < num_tables; ++t) {
    int length = static_cast<int>(bits.take(5));
    for (size_t s = 0; s < header.num_symbols; ++s) {
      while (bits.take(1) == 1) {
        length += bits.take(1) == 1 ? -1 : 1;
        if (length < 1 || length > kLongestCode || bits.next() > end + kAhead) return false;
      }
      if (length < 1 || length > kLongestCode) return false;
      lengths[s] = static_cast<uint8_t>(length);
    }
    if (!header.codes[t].build(std::span(lengths).first(header.num_symbols))) return false;
  }
  return true;
}

bool read_header(Bits& bits, const char* end, Header& header) {
  constexpr uint32_t kMarkHigh = 0x314159, kMarkLow = 0x265359;
  if (bits.take(24) != kMarkHigh || bits.take(24) != kMarkLow) return false;
  header.sum = bits.take(16) << 16;
  header.sum |= bits.take(16);
  if (bits.take(1) == 1) return false;  // randomised
  header.origin = bits.take(24);
  if (!read_used(bits, header)) return false;
  const size_t num_tables = bits.take(3);
  return num_tables >= 2 && num_tables <= kMostTables &&
         read_selectors(bits, end, num_tables, header) && read_codes(bits, end, num_tables, header);
}

/// The byte at `index` of `order`, moved to its front.
uint8_t move_to_front(uint8_t* order, size_t index) {
  const uint8_t byte = order[index];
  if (index < 16) {
    for (size_t i = index; i > 0; --i) order[i] = order[i - 1];
  } else {
    std::memmove(order + 1, order, index);
  }
  order[0] = byte;
  return byte;
}

/// Symbols to bytes, one in each of `links`; how many, 0 where they are not good.
size_t read_symbols(Bits& bits, const char* end, const Header& header, std::span<uint32_t> links) {
  std::array<uint8_t, 256> order = header.used;
  const uint32_t last = static_cast<uint32_t>(header.num_symbols) - 1;
  size_t size = 0, run = 0, weight = 1;
  for (const uint8_t selector : header.selectors) {
    const Code& code = header.codes[selector];
    if (bits.next() > end + kAhead) return 0;
    for (size_t i = 0; i < kGroup; ++i) {
      bits.refill();
      const uint32_t symbol = code.read(bits);
      if (symbol <= 1) {
        if (weight > links.size()) return 0;
        run += weight << symbol;
        weight <<= 1;
        continue;
      }
      if (run > 0) {
        if (run > links.size() - size) return 0;
        std::fill_n(links.begin() + static_cast<std::ptrdiff_t>(size), run, order[0]);
        size += run;
        run = 0;
        weight = 1;
      }
      if (symbol == last) return size;
      if (symbol > last || size == links.size()) return 0;
      links[size++] = move_to_front(order.data(), symbol - 1);
    }
  }
  return 0;
}

/// CRC-32 as bzip2 has it: high bit first. Eight bytes a step.
constexpr std::array<std::array<uint32_t, 256>, 8> make_sum_tables() {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t sum = i << 24;
    for (int bit = 0; bit < 8; ++bit) sum = sum << 1 ^ (sum >> 31 ? 0x04C11DB7 : 0);
    tables[0][i] = sum;
  }
  for (uint32_t i = 0; i < 256; ++i) {
    for (size_t t = 1; t < 8; ++t) {
      tables[t][i] = tables[t - 1][i] << 8 ^ tables[0][tables[t - 1][i] >> 24];
    }
  }
  return tables;
}
constexpr std::array<std::array<uint32_t, 256>, 8> kSumTables = make_sum_tables();

uint32_t sum_of(std::string_view bytes) {
  const auto& t = kSumTables;
  uint32_t sum = 0xFFFFFFFF;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, sizeof word);
    word = __builtin_bswap64(word) ^ static_cast<uint64_t>(sum) << 32;
    sum = t[7][word >> 56] ^ t[6][word >> 48 & 255] ^ t[5][word >> 40 & 255] ^
          t[4][word >> 32 & 255] ^ t[3][word >> 24 & 255] ^ t[2][word >> 16 & 255] ^
          t[1][word >> 8 & 255] ^ t[0][word & 255];
  }
  for (; i < bytes.size(); ++i) {
    sum = sum << 8 ^ t[0][(sum >> 24) ^ static_cast<uint8_t>(bytes[i])];
  }
  return ~sum;
}

}  // namespace

namespace {

// On large pages, where the system has them: every step of the walk needs the translation of an
// address that the processor would rarely have at hand.
uint32_t* new_links(size_t count) {
  constexpr size_t kLargePage = 2 << 20;
  const size_t bytes = (count * sizeof(uint32_t) + kLargePage - 1) / kLargePage * kLargePage;
  void* const table = std::aligned_alloc(kLargePage, bytes);
  if (table == nullptr) throw std::bad_alloc();
  ::madvise(table, bytes, MADV_HUGEPAGE);
  return static_cast<uint32_t*>(table);
}

}  // namespace

bool Bzip2Walk::read(std::string_view bits, int64_t num_bits, char level) {
  std::string padded(bits);
  padded.append(kReadBeyond, '\0');
  const char* end = padded.data() + bits.size();
  Bits reader(padded.data());
  auto header = std::make_unique<Header>();
  if (!read_header(reader, end, *header)) return false;
  const size_t most = static_cast<size_t>(level - '0') * 100000;
  links_.reset(new_links(most));
  size_ = read_symbols(reader, end, *header, {links_.get(), most});
  if (size_ == 0 || reader.taken(padded.data()) != num_bits || header->origin >= size_) {
    return false;
  }
  std::array<uint32_t, 256> next{};
  for (size_t i = 0; i < size_; ++i) ++next[links_[i]];
  uint32_t before = 0;
  for (uint32_t& place : next) before += std::exchange(place, before);
  for (size_t i = 0; i < size_; ++i) {
    links_[next[links_[i] & 255]++] |= static_cast<uint32_t>(i) << 8;
  }
  bytes_ = std::make_unique_for_overwrite<uint8_t[]>(size_);
  place_ = links_[header->origin] >> 8;
  sum_ = header->sum;
  return true;
}

namespace {

struct Pace {
  const uint32_t* links;
  uint8_t* out;
  uint32_t place;
  size_t left;
};

/// `steps` steps of the first N, side by side.
template <size_t N>
void walk(Pace* paces, size_t steps) {
  std::array<uint32_t, N> place;
  for (size_t k = 0; k < N; ++k) place[k] = paces[k].place;
  for (size_t i = 0; i < steps; ++i) {
    for (size_t k = 0; k < N; ++k) {
      const uint32_t link = paces[k].links[place[k]];
      paces[k].out[i] = static_cast<uint8_t>(link);
      place[k] = link >> 8;
    }
  }
  for (size_t k = 0; k < N; ++k) {
    paces[k].place = place[k];
    paces[k].out += steps;
    paces[k].left -= steps;
  }
}

}  // namespace

void follow(std::span<Bzip2Walk* const> walks) {
  std::vector<Pace> paces;
  for (const Bzip2Walk* w : walks) {
    paces.push_back({w->links_.get(), w->bytes_.get(), w->place_, w->size_});
  }
  while (!paces.empty()) {
    std::sort(paces.begin(), paces.end(),
              [](const Pace& a, const Pace& b) { return a.left > b.left; });
    while (!paces.empty() && paces.back().left == 0) paces.pop_back();
    if (paces.size() >= 4) {
      walk<4>(paces.data(), paces[3].left);
    } else if (paces.size() == 3) {
      walk<3>(paces.data(), paces[2].left);
    } else if (paces.size() == 2) {
      walk<2>(paces.data(), paces[1].left);
    } else if (paces.size() == 1) {
      walk<1>(paces.data(), paces[0].left);
    }
  }
}

bool Bzip2Walk::finish(std::string& out, size_t most_bytes, bool& over_limit) const {
  constexpr size_t kRun = 4;
  const char* const bytes = reinterpret_cast<const char*>(bytes_.get());
  out.clear();
  out.reserve(size_ + size_ / 16);
  for (size_t i = 0; i < size_;) {
    size_t j = i;
    while (j + kRun <= size_) {  // a run that ends at j + 3 begins at j, or behind the odd byte
      if (bytes[j + 3] != bytes[j + 2]) {
        j += 3;
      } else if (bytes[j + 2] != bytes[j + 1]) {
        j += 2;
      } else if (bytes[j + 1] != bytes[j]) {
        j += 1;
      } else {
        break;
      }
    }
    const bool run = j + kRun <= size_;
    const size_t end = run ? j + kRun : size_;
    out.append(bytes + i, end - i);
    if (run && end < size_) out.append(bytes_[end], bytes[j]);
    i = run ? end + 1 : end;
    over_limit = out.size() > most_bytes;
    if (over_limit) return false;
  }
  return sum_of(out) == sum_;
}

}  // namespace stream
