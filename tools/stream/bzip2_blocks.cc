// SPDX-License-Identifier: MIT
// Search for block marks at any bit offset, cutting, decoding through libbz2, checksums.
// Layout: "BZh" level, then per block the mark 0x314159265359, its CRC (32 bits), its bits; at the
// end of a stream 0x177245385090, the combined CRC (32 bits), and zero bits up to a whole byte.

#include "tools/stream/bzip2_blocks.h"

#include <bzlib.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "tools/stream/bzip2_decoder.h"

namespace stream {
namespace {

constexpr uint64_t kBlockMark = 0x314159265359;
constexpr uint64_t kEndMark = 0x177245385090;
constexpr uint64_t kMask48 = (uint64_t{1} << 48) - 1;
constexpr int kMarkBits = 48;
constexpr int kMarkAndSumBits = 80;
constexpr int64_t kLongestBlock = 8 << 20;  // a block is under 1 MB; it may contain marks by chance

// Whether a pair of bytes could be bytes 2 and 3 of the 7 bytes that a mark spans at any bit.
class Candidates {
 public:
  constexpr Candidates() {
    for (int shift = 0; shift < 8; ++shift) {
      for (const uint64_t mark : {kBlockMark, kEndMark}) {
        // The mark's last bit is followed by `shift` bits of the newest byte.
        const uint64_t pair = mark << shift >> 16 & 0xFFFF;
        words_[pair / 64] |= uint64_t{1} << pair % 64;
      }
    }
  }
  bool has(uint64_t window) const {
    const uint64_t pair = window >> 16 & 0xFFFF;
    return (words_[pair / 64] >> pair % 64 & 1) != 0;
  }

 private:
  std::array<uint64_t, 1024> words_{};
};
constexpr Candidates kCandidates;

std::string at_byte(int64_t byte, std::string_view reason) {
  return "byte " + std::to_string(byte) + ": " + std::string(reason);
}

void append_bits(std::string& bits, int64_t& num_bits, uint64_t value, int count) {
  for (int i = count - 1; i >= 0; --i) {
    if (num_bits % 8 == 0) bits.push_back(0);
    if (value >> i & 1) bits.back() = static_cast<char>(bits.back() | 0x80 >> (num_bits % 8));
    ++num_bits;
  }
}

uint32_t block_crc(const Bzip2Block& block) {
  uint32_t crc = 0;
  for (size_t i = 6; i < 10 && i < block.bits.size(); ++i)
    crc = crc << 8 | static_cast<uint8_t>(block.bits[i]);
  return crc;
}

}  // namespace

uint64_t Bzip2Splitter::bits_at(int64_t bit, int count) const {
  uint64_t value = 0;
  for (int i = 0; i < count; ++i) {
    value = value << 1 | (byte_at((bit + i) / 8) >> (7 - (bit + i) % 8) & 1);
  }
  return value;
}

void Bzip2Splitter::start_inside(int64_t byte) {
  base_ = scanned_ = byte;
  stream_byte_ = byte - 4;  // as if the stream's header were just before
  level_ = '9';             // large enough for every block
  first_in_stream_ = false;
  inside_ = true;
}

void Bzip2Splitter::feed(std::string_view bytes, std::vector<Bzip2Block>& blocks) {
  buffer_.append(bytes);
  const int64_t end = base_ + static_cast<int64_t>(buffer_.size());
  if (end - std::max(block_bit_ / 8, stream_byte_) >
      kLongestBlock + static_cast<int64_t>(bytes.size())) {
    throw Bzip2Error(at_byte(block_bit_ / 8, "damaged block: no other begins within 8 MiB"));
  }
  if (end_bit_ >= 0) settle(blocks, false);
  while (scanned_ < end) {
    if (level_ == 0 && !settle(blocks, false)) return;
    if (scanned_ >= end || !find_candidate(end)) return;
    for (int shift = 0; shift < 8; ++shift) {
      const uint64_t seen = window_ >> shift & kMask48;
      const int64_t bit = scanned_ * 8 - shift - kMarkBits;
      if (seen == kBlockMark) mark(bit, false, blocks);
      if (seen == kEndMark) mark(bit, true, blocks);
    }
    if (end_bit_ >= 0) settle(blocks, false);
  }
}

// Scans up to `end`, or past a byte that could be the last one of a mark. False if there is none.
bool Bzip2Splitter::find_candidate(int64_t end) {
  const char* next = buffer_.data() + (scanned_ - base_);
  const char* const stop = next + (end - scanned_);
  uint64_t window = window_;
  bool found = false;
  while (!found && next < stop) {
    window = window << 8 | static_cast<uint8_t>(*next++);
    found = kCandidates.has(window);
  }
  window_ = window;
  scanned_ = end - (stop - next);
  return found;
}

// A mark was found. Marks before the header of the current stream, or inside an unconfirmed end,
// occur by chance.
void Bzip2Splitter::mark(int64_t bit, bool end, std::vector<Bzip2Block>& blocks) {
  if (bit < (stream_byte_ + 4) * 8 || (block_bit_ >= 0 && bit < block_bit_ + kMarkAndSumBits))
    return;
  if (block_bit_ < 0 && bit != (stream_byte_ + 4) * 8 && !inside_) {
    throw Bzip2Error(
        at_byte(stream_byte_ + 4, "not bzip2 data: no block follows the stream's head"));
  }
  if (end) {
    end_bit_ = bit;
    return;
  }
  if (block_bit_ >= 0) emit(bit, blocks);
  block_bit_ = bit;
  inside_ = false;
}

// Decides whether a candidate for a stream's end is one (a byte-aligned header or nothing follows
// it), and whether a candidate for a header is one. False if more bytes are needed.
bool Bzip2Splitter::settle(std::vector<Bzip2Block>& blocks, bool at_end) {
  const int64_t known = base_ + static_cast<int64_t>(buffer_.size());
  if (end_bit_ >= 0) {
    const int64_t next = (end_bit_ + kMarkAndSumBits + 7) / 8;
    if (known < next + (at_end ? 0 : 4)) {
      if (at_end)
        throw Bzip2Error(at_byte(known, "truncated: the sum of the last stream is cut off"));
      return false;
    }
    const auto head_byte = [&](int64_t i) {
      return next + i < known ? byte_at(next + i) : uint8_t{0};
    };
    const bool head = head_byte(0) == 'B' && head_byte(1) == 'Z' && head_byte(2) == 'h';
    if (!head && !(at_end && known == next)) {
      if (at_end)
        throw Bzip2Error(at_byte(next, "bytes that are not bzip2 follow the end of the data"));
      doubtful_end_ =
          next;  // the mark was in a block by chance, or garbage follows: finish() decides
      end_bit_ = -1;
      return true;
    }
    const uint32_t crc = static_cast<uint32_t>(bits_at(end_bit_ + kMarkBits, 32));
    if (block_bit_ >= 0) {
      emit(end_bit_, blocks);
    } else {
      Bzip2Block& empty = blocks.emplace_back();
      empty.byte_offset = inside_ ? end_bit_ / 8 : stream_byte_;
      empty.level = level_;
      empty.begins_stream = !inside_;
    }
    blocks.back().ends_stream = true;
    blocks.back().stream_crc = crc;
    block_bit_ = end_bit_ = -1;
    level_ = 0;
    stream_byte_ = scanned_ = next;
    window_ = 0;
    drop_before(next);
  }
  if (level_ != 0) return true;
  if (known - stream_byte_ < 4) return false;
  begin_stream(stream_byte_);
  return true;
}

void Bzip2Splitter::begin_stream(int64_t byte) {
  const bool head = byte_at(byte) == 'B' && byte_at(byte + 1) == 'Z' && byte_at(byte + 2) == 'h' &&
                    byte_at(byte + 3) >= '1' && byte_at(byte + 3) <= '9';
  if (!head) throw Bzip2Error(at_byte(byte, "not a bzip2 stream"));
  level_ = static_cast<char>(byte_at(byte + 3));
  scanned_ = byte + 4;
  window_ = 0;
  first_in_stream_ = true;
  inside_ = false;
}

void Bzip2Splitter::emit(int64_t end_bit, std::vector<Bzip2Block>& blocks) {
  Bzip2Block block;
  block.byte_offset = block_bit_ / 8;
  block.num_bits = end_bit - block_bit_;
  block.level = level_;
  block.begins_stream = first_in_stream_;
  first_in_stream_ = false;
  const int shift = static_cast<int>(block_bit_ % 8);
  const size_t first = static_cast<size_t>(block_bit_ / 8 - base_);
  const size_t length = static_cast<size_t>((block.num_bits + 7) / 8);
  block.bits.resize(length);
  const auto byte = [&](size_t i) {
    return first + i < buffer_.size() ? static_cast<uint8_t>(buffer_[first + i]) : uint8_t{0};
  };
  size_t i = 0;
  for (uint64_t word; i + sizeof word <= length; i += sizeof word) {
    std::memcpy(&word, buffer_.data() + first + i, sizeof word);
    word = __builtin_bswap64(word) << shift | byte(i + sizeof word) >> (8 - shift);
    word = __builtin_bswap64(word);
    std::memcpy(block.bits.data() + i, &word, sizeof word);
  }
  for (; i < length; ++i) {
    block.bits[i] = static_cast<char>((byte(i) << 8 | byte(i + 1)) >> (8 - shift) & 0xFF);
  }
  if (const int extra = static_cast<int>(block.num_bits % 8); extra != 0) {
    block.bits.back() = static_cast<char>(block.bits.back() & (0xFF00 >> extra & 0xFF));
  }
  blocks.push_back(std::move(block));
  drop_before(end_bit / 8);
}

void Bzip2Splitter::drop_before(int64_t byte) {
  constexpr int64_t kWorthMoving = 1 << 20;
  if (byte - base_ < kWorthMoving && byte - base_ < static_cast<int64_t>(buffer_.size())) return;
  buffer_.erase(0, static_cast<size_t>(byte - base_));
  base_ = byte;
}

void Bzip2Splitter::finish(std::vector<Bzip2Block>& blocks) {
  const int64_t known = base_ + static_cast<int64_t>(buffer_.size());
  if (end_bit_ < 0 && level_ == 0 && known == stream_byte_ && known > 0) return;
  if (end_bit_ < 0 && inside_) return;  // began after the last block's first bit
  if (end_bit_ < 0 && level_ == 0)
    throw Bzip2Error(at_byte(known, known == 0 ? "empty input" : "truncated"));
  if (end_bit_ < 0 && doubtful_end_ > block_bit_ / 8) {
    throw Bzip2Error(at_byte(doubtful_end_, "bytes that are not bzip2 follow the end of the data"));
  }
  if (end_bit_ < 0) throw Bzip2Error(at_byte(known, "truncated: the last stream has no end"));
  // At most three bytes follow the last end here: none, or garbage.
  settle(blocks, true);
}

DecodedBlock decode_block(Bzip2Block block, size_t most_bytes) {
  DecodedBlock result;
  if (block.num_bits == 0) return {std::move(block), {}, true};
  std::string input = {'B', 'Z', 'h', block.level};
  std::string bits = block.bits;
  int64_t num_bits = block.num_bits;
  append_bits(bits, num_bits, kEndMark, kMarkBits);
  append_bits(bits, num_bits, block_crc(block), 32);
  input += bits;
  bz_stream bz{};
  if (BZ2_bzDecompressInit(&bz, 0, 0) != BZ_OK) throw std::bad_alloc();
  bz.next_in = input.data();
  bz.avail_in = static_cast<unsigned>(input.size());
  result.bytes.resize(static_cast<size_t>(block.level - '0') * 100000 + 4096);
  size_t written = 0;
  int status = BZ_OK;
  while (status == BZ_OK && written <= most_bytes) {
    if (written == result.bytes.size()) result.bytes.resize(written * 2);
    bz.next_out = result.bytes.data() + written;
    bz.avail_out = static_cast<unsigned>(result.bytes.size() - written);
    const unsigned before_in = bz.avail_in;
    const unsigned before_out = bz.avail_out;
    status = BZ2_bzDecompress(&bz);
    written += before_out - bz.avail_out;
    if (status == BZ_OK && bz.avail_in == before_in && bz.avail_out == before_out)
      status = BZ_DATA_ERROR;
  }
  BZ2_bzDecompressEnd(&bz);
  result.over_limit = (status == BZ_OK || status == BZ_STREAM_END) && written > most_bytes;
  const bool whole = bz.avail_in == 0;  // otherwise the bits contain an end of a stream by chance
  result.ok = status == BZ_STREAM_END && whole && !result.over_limit;
  result.bytes.resize(result.ok ? written : 0);
  result.block = std::move(block);
  return result;
}

DecodedBlock decode_block(Bzip2Block block, size_t most_bytes, Bzip2Decoder& decoder) {
  DecodedBlock result;
  result.ok =
      block.num_bits > 0 && decoder.decode(block, most_bytes, result.bytes, result.over_limit);
  if (!result.ok && !result.over_limit) return decode_block(std::move(block), most_bytes);
  if (result.over_limit) result.bytes.clear();
  result.block = std::move(block);
  return result;
}

void Bzip2Joiner::check_sum(const Bzip2Block& block) {
  if (block.begins_stream) {
    stream_crc_ = 0;
    sum_known_ = true;
  }
  if (block.num_bits > 0) stream_crc_ = (stream_crc_ << 1 | stream_crc_ >> 31) ^ block_crc(block);
  if (block.ends_stream && sum_known_ && stream_crc_ != block.stream_crc) {
    throw Bzip2Error(at_byte(block.byte_offset, "the sum over the stream's blocks is wrong"));
  }
}

void Bzip2Joiner::add(DecodedBlock decoded, std::string& out) {
  if (has_pending_) {
    // This block's mark occurred in the previous block by chance, or that block is damaged.
    Bzip2Block whole = std::move(pending_);
    has_pending_ = false;
    int64_t left = decoded.block.num_bits;
    for (const char byte : decoded.block.bits) {
      const int count = static_cast<int>(std::min<int64_t>(8, left));
      append_bits(whole.bits, whole.num_bits, static_cast<uint8_t>(byte) >> (8 - count), count);
      left -= count;
    }
    whole.ends_stream = decoded.block.ends_stream;
    whole.stream_crc = decoded.block.stream_crc;
    const int64_t offset = whole.byte_offset;
    decoded = decode_block(std::move(whole));
    if (!decoded.ok) throw Bzip2Error(at_byte(offset, "damaged block"));
  }
  if (!decoded.ok) {
    // After the stream's end nothing more can belong to this block.
    if (decoded.block.ends_stream)
      throw Bzip2Error(at_byte(decoded.block.byte_offset, "damaged block"));
    pending_ = std::move(decoded.block);
    has_pending_ = true;
    return;
  }
  check_sum(decoded.block);
  if (out.empty()) {
    out = std::move(decoded.bytes);
  } else {
    out += decoded.bytes;
  }
}

void Bzip2Joiner::finish() const {
  if (has_pending_) throw Bzip2Error(at_byte(pending_.byte_offset, "damaged block"));
}

}  // namespace stream
