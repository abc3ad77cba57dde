// SPDX-License-Identifier: MIT
// Links, the walk in pieces, run lengths and the checksum.
#include "tools/stream/bzip2_decoder.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "tools/stream/bzip2_blocks.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace stream {
namespace {

constexpr size_t kReadBeyond = 256;  // bytes past the block that loading a group of symbols may
                                     // read
constexpr size_t kLanes = 32;        // pieces walked at the same time
constexpr size_t kSteps = 4;         // adjacent bytes of a lane
constexpr size_t kPieceBytes = 400;  // on average: shorter pieces cost switches, longer ones leave
                                     // lanes idle
constexpr uint32_t kMark = uint32_t{1} << 31;

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

// Uses large pages if the system has them: with small pages nearly every step of the walk would
// miss the TLB.
uint32_t* large_table(size_t count) {
  constexpr size_t kLargePage = 2 << 20;
  const size_t bytes = (count * sizeof(uint32_t) + kLargePage - 1) / kLargePage * kLargePage;
  void* const table = std::aligned_alloc(kLargePage, bytes);
  if (table == nullptr) throw std::bad_alloc();
  ::madvise(table, bytes, MADV_HUGEPAGE);
  return static_cast<uint32_t*>(table);
}

// Where the first run of four begins from `at` on; `size` if there is none. Bytes past `size` may
// be read.
size_t find_run(const uint8_t* bytes, size_t at, size_t size) {
  constexpr size_t kRun = 4;
#if defined(__SSE2__)
  constexpr size_t kWidth = 16;
  static_assert(Bzip2Bytes::kSlack >= kWidth + kRun);
  const auto load = [&](size_t i) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + i));
  };
  for (; at + kRun <= size; at += kWidth) {
    const __m128i second = load(at + 1), third = load(at + 2);
    const __m128i same = _mm_and_si128(
        _mm_cmpeq_epi8(load(at), second),
        _mm_and_si128(_mm_cmpeq_epi8(second, third), _mm_cmpeq_epi8(third, load(at + 3))));
    const auto mask = static_cast<unsigned>(_mm_movemask_epi8(same));
    if (mask == 0) continue;
    at += static_cast<size_t>(std::countr_zero(mask));
    return at + kRun <= size ? at : size;
  }
#else
  for (; at + kRun <= size; ++at) {
    if (bytes[at] == bytes[at + 1] && bytes[at] == bytes[at + 2] && bytes[at] == bytes[at + 3])
      return at;
  }
#endif
  return size;
}

}  // namespace

/// The walk: pieces begin at every place that is a multiple of a stride, and at the origin, and end
/// where another begins. All lanes advance one step at a time; a lane whose piece has ended begins
/// another.
class Bzip2Decoder::Walk {
 public:
  explicit Walk(Bzip2Decoder& of)
      : of_(of),
        links_(of.links_.get()),
        size_(of.bytes_.size),
        origin_(of.header_.origin),
        stride_(kPieceBytes),
        regular_((size_ + stride_ - 1) / stride_) {
    of_.pieces_.assign(regular_ + 1, {});
    for (size_t piece = 0; piece <= regular_; ++piece) links_[begin_of(piece)] |= kMark;
    links_[size_] = static_cast<uint32_t>(size_ << 8);  // where lanes without a piece wait
    waiting_ = regular_ + 1;
  }

  /// The piece that begins at the origin.
  size_t first() const { return regular_; }

  void run() {
    uint8_t* rows = of_.rows_.get();
    for (size_t lane = 0; lane < kLanes; ++lane) begin_piece(lane);
    while (busy_ > 0) {
      for (size_t lane = 0; lane < kLanes; ++lane) {
        held_[lane] = held_[lane] >> 8 | link_[lane] << 24;
        place_[lane] = link_[lane] >> 8;
      }
      if (++row_ % kSteps == 0) {
        std::memcpy(rows, held_.data(), sizeof held_);
        rows += sizeof held_;
      }
      uint32_t all = 0;
      for (size_t lane = 0; lane < kLanes; ++lane) {
        link_[lane] = links_[place_[lane]];
        all |= link_[lane];
      }
      if ((all & kMark) != 0) [[unlikely]]
        turn();
    }
    const size_t open = row_ % kSteps;  // steps in held_ that are not in the rows
    for (uint32_t& held : held_) held >>= 8 * (kSteps - open) % 32;
    std::memcpy(rows, held_.data(), sizeof held_);
  }

 private:
  size_t begin_of(size_t piece) const { return piece == regular_ ? origin_ : piece * stride_; }
  size_t piece_at(size_t place) const { return place == origin_ ? regular_ : place / stride_; }

  void turn() {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      if ((link_[lane] & kMark) == 0) continue;
      Piece& ended = of_.pieces_[piece_[lane]];
      ended.end = row_;
      ended.next = piece_at(place_[lane]);
      --busy_;
      begin_piece(lane);
    }
  }

  void begin_piece(size_t lane) {
    place_[lane] = static_cast<uint32_t>(size_);
    while (waiting_ > 0) {
      const size_t piece = --waiting_;
      if (piece != regular_ && begin_of(piece) == origin_) continue;
      piece_[lane] = piece;
      of_.pieces_[piece].lane = lane;
      of_.pieces_[piece].begin = row_;
      place_[lane] = static_cast<uint32_t>(begin_of(piece));
      ++busy_;
      break;
    }
    link_[lane] = links_[place_[lane]] & ~kMark;
  }

  Bzip2Decoder& of_;
  uint32_t* const links_;
  const size_t size_;
  const size_t origin_;
  const size_t stride_;
  const size_t regular_;  // pieces that begin at a multiple of the stride
  size_t waiting_ = 0;    // the pieces below this have not begun
  size_t busy_ = 0;       // lanes with a piece
  size_t row_ = 0;
  std::array<uint32_t, kLanes> link_{}, place_{}, held_{};
  std::array<size_t, kLanes> piece_{};
};

void Bzip2Decoder::make_room(size_t most) {
  bytes_.most = most;
  if (most <= room_) return;
  byte_memory_ = std::make_unique_for_overwrite<uint8_t[]>(most + Bzip2Bytes::kSlack);
  bytes_.bytes = byte_memory_.get();
  links_.reset(large_table(most + 1));
  // Enough for one lane that walks alone. Pages that are not written take no memory.
  rows_ = std::make_unique_for_overwrite<uint8_t[]>((most + 2 * kSteps) * kLanes);
  room_ = most;
}

bool Bzip2Decoder::read(const Bzip2Block& block) {
  constexpr size_t kBytesPerLevel = 100000;
  padded_.assign(block.bits).append(kReadBeyond, '\0');
  const char* const end = padded_.data() + block.bits.size();
  Bzip2Bits reader(padded_.data());
  if (!header_.read(reader, end)) return false;
  make_room(static_cast<size_t>(block.level - '0') * kBytesPerLevel);
  return read_symbols_(reader, end, header_, bytes_) &&
         reader.taken(padded_.data()) == block.num_bits && header_.origin < bytes_.size;
}

void Bzip2Decoder::link() {
  std::array<uint32_t, 256> next = bytes_.counts;
  uint32_t before = 0;
  for (uint32_t& place : next) before += std::exchange(place, before);
  uint32_t* const links = links_.get();
  for (size_t i = 0; i < bytes_.size; ++i) {
    const uint8_t byte = bytes_.bytes[i];
    links[next[byte]++] = static_cast<uint32_t>(i << 8) | byte;
  }
}

// In a block that repeats itself the pieces have fewer bytes than the block: they are used again.
void Bzip2Decoder::join(size_t first) {
  uint8_t* out = bytes_.bytes;
  uint8_t* const end = out + bytes_.size;
  for (size_t at = first; out < end; at = pieces_[at].next) {
    const Piece& piece = pieces_[at];
    const uint8_t* const lane = rows_.get() + piece.lane * kSteps;
    const auto byte = [&](size_t row) {
      return lane + row / kSteps * (kLanes * kSteps) + row % kSteps;
    };
    size_t row = piece.begin;
    const size_t last = std::min(piece.end, row + static_cast<size_t>(end - out));
    for (; row < last && row % kSteps != 0; ++row) *out++ = *byte(row);
    for (; row + kSteps <= last; row += kSteps, out += kSteps) std::memcpy(out, byte(row), kSteps);
    for (; row < last; ++row) *out++ = *byte(row);
  }
}

/// Expands run lengths and verifies the checksum.
bool Bzip2Decoder::unrun(size_t most_bytes, std::string& out, bool& over_limit) const {
  constexpr size_t kRun = 4;
  const size_t size = bytes_.size;
  const char* const bytes = reinterpret_cast<const char*>(bytes_.bytes);
  out.clear();
  out.reserve(size + size / 16);
  for (size_t i = 0; i < size;) {
    const size_t run = find_run(bytes_.bytes, i, size);
    const size_t end = std::min(run + kRun, size);
    if (run < size && end == size) return false;  // a run without its length
    out.append(bytes + i, end - i);
    if (end < size) out.append(bytes_.bytes[end], bytes[run]);
    i = end + 1;
    over_limit = out.size() > most_bytes;
    if (over_limit) return false;
  }
  return sum_of(out) == header_.sum;
}

bool Bzip2Decoder::decode(const Bzip2Block& block, size_t most_bytes, std::string& out,
                          bool& over_limit) {
  over_limit = false;
  if (!read(block)) return false;
  link();
  Walk walk(*this);
  walk.run();
  join(walk.first());
  return unrun(most_bytes, out, over_limit);
}

}  // namespace stream
