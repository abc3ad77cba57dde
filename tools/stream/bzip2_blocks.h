// SPDX-License-Identifier: MIT
// bzip2 in parallel: every block of a .bz2 file can be decoded alone, and begins with a 48-bit mark
// at any bit offset. Bzip2Splitter (one thread) cuts the compressed bytes into blocks, decode_block
// (any thread) decodes one, Bzip2Joiner (one thread) puts them in order and checks every checksum.
// Files of many streams (Wikipedia's, pbzip2's) and of one stream are treated alike. The mark can
// occur inside a block by chance (once in some petabytes): a block that does not decode alone is
// decoded together with the next, so this costs time but no data. Not here: the decoders
// (bzip2_decoder.h, and libbz2 for blocks that it rejects).
// Source of the layout: the bzip2 1.0 sources, compress.c.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace stream {

class Bzip2Decoder;

/// The bytes are not a complete bzip2 file. The text says where (byte of the compressed input) and
/// why.
struct Bzip2Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Compressed bits of one block, or of the end of a stream.
struct Bzip2Block {
  std::string
      bits;  ///< the block's bits from its first one, left-aligned; the last byte is padded with 0
  int64_t num_bits = 0;
  int64_t byte_offset = 0;  ///< of its first bit in the input, for messages
  char level = '9';         ///< '1' to '9': the stream's block size in 100,000 bytes
  bool ends_stream =
      false;  ///< a stream's end follows this block (a stream without blocks: no bits)
  uint32_t stream_crc = 0;  ///< with ends_stream: the checksum in the stream's end
  bool begins_stream = false;
};

/// A decoded block.
struct DecodedBlock {
  Bzip2Block block;
  std::string bytes;        ///< up to some 46 MB for a block of 900,000 bytes; 900,000 as a rule
  bool ok = false;          ///< false: does not decode alone
  bool over_limit = false;  ///< not decoded: it has more bytes than allowed
};

/// Cuts compressed bytes into blocks. Feed in order, then finish. One thread.
class Bzip2Splitter {
 public:
  /// The fed bytes will begin at `byte` of the input, which may be anywhere: blocks that begin
  /// before it are skipped. Call before feed.
  void start_inside(int64_t byte);

  /// Appends blocks whose end is now known to `blocks`.
  /// Memory: the current block (under 1 MB) and the bytes given. Errors: Bzip2Error.
  void feed(std::string_view bytes, std::vector<Bzip2Block>& blocks);
  /// No more bytes follow. Errors: Bzip2Error when a stream has no end.
  void finish(std::vector<Bzip2Block>& blocks);

 private:
  bool find_candidate(int64_t end);
  void mark(int64_t bit, bool end, std::vector<Bzip2Block>& blocks);
  bool settle(std::vector<Bzip2Block>& blocks, bool at_end);
  void emit(int64_t end_bit, std::vector<Bzip2Block>& blocks);
  void begin_stream(int64_t byte);
  void drop_before(int64_t byte);
  uint8_t byte_at(int64_t byte) const {
    return static_cast<uint8_t>(buffer_[static_cast<size_t>(byte - base_)]);
  }
  uint64_t bits_at(int64_t bit, int count) const;

  std::string buffer_;         // compressed bytes from base_ on
  int64_t base_ = 0;           // offset in the input of buffer_[0]
  int64_t scanned_ = 0;        // bytes before this have been searched
  uint64_t window_ = 0;        // the last eight bytes searched
  int64_t block_bit_ = -1;     // first bit of the open block; -1 before the first of a stream
  int64_t stream_byte_ = 0;    // where the current stream begins
  int64_t end_bit_ = -1;       // a stream's end that the next bytes have not yet confirmed
  int64_t doubtful_end_ = -1;  // byte after a stream's end that invalid bytes followed
  char level_ = 0;             // 0: expects a stream's header at stream_byte_
  bool first_in_stream_ = true;
  bool inside_ = false;  // the first block of the fed bytes is not yet found; it may begin later
};

/// Decodes one block by itself with libbz2, unless it has more than `most_bytes`. Any thread.
DecodedBlock decode_block(Bzip2Block block, size_t most_bytes = std::string::npos);

/// The same in a third of the time, reusing the memory of `decoder`. One thread for each decoder.
DecodedBlock decode_block(Bzip2Block block, size_t most_bytes, Bzip2Decoder& decoder);

/// Takes decoded blocks in the order of the splitter. One thread.
class Bzip2Joiner {
 public:
  /// The first blocks come from inside a stream, whose checksum cannot be verified.
  void start_inside() { sum_known_ = false; }

  /// Appends confirmed bytes to `out`. Errors: Bzip2Error for damaged data or a wrong checksum.
  void add(DecodedBlock decoded, std::string& out);
  /// Errors: Bzip2Error if the last block is incomplete.
  void finish() const;

 private:
  void check_sum(const Bzip2Block& block);

  Bzip2Block pending_;
  bool has_pending_ = false;
  uint32_t stream_crc_ = 0;
  bool sum_known_ = true;
};

}  // namespace stream
