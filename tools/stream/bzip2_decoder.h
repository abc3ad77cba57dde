// SPDX-License-Identifier: MIT
// A bzip2 block decoder of our own. Undoing the Burrows-Wheeler transform is a walk through a table
// of 3.6 MB in which each step depends on the one before, so it waits for memory. Here the walk's
// cycle is cut at fixed places, and 32 pieces are walked at the same time; their order is known
// when all have ended. Rejects anything unusual; libbz2 then decides (bzip2_blocks.cc). The steps
// before the walk are in bzip2_symbols.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tools/stream/bzip2_symbols.h"

namespace stream {

struct Bzip2Block;

/// Decodes blocks, one at a time, and keeps its memory from one to the next: 6 MB, and up to 29 MB
/// more after a block that repeats itself.
class Bzip2Decoder {
 public:
  explicit Bzip2Decoder(Bzip2SymbolReader read_symbols = best_symbol_reader())
      : read_symbols_(read_symbols) {}

  /// Decodes `block` into `out`. False if the block is invalid or of the old, randomised kind, its
  /// checksum is wrong, or it has more than `most_bytes`; only the last sets `over_limit`.
  bool decode(const Bzip2Block& block, size_t most_bytes, std::string& out, bool& over_limit);

 private:
  // Bytes from one place where the cycle is cut to the next.
  struct Piece {
    size_t lane = 0;
    size_t begin = 0;  // its rows in that lane
    size_t end = 0;
    size_t next = 0;
  };
  class Walk;
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  bool read(const Bzip2Block& block);
  void make_room(size_t most);
  void link();
  void join(size_t first);
  bool unrun(size_t most_bytes, std::string& out, bool& over_limit) const;

  Bzip2SymbolReader read_symbols_;
  std::string padded_;
  Bzip2Header header_;
  Bzip2Bytes bytes_;                        // ordered by context; after join(), in the order of the
                                            // text
  std::unique_ptr<uint8_t[]> byte_memory_;  // of bytes_
  // For each place: its byte, 20 bits for the next place, and a mark if a piece begins there.
  std::unique_ptr<uint32_t[], Free> links_;
  std::unique_ptr<uint8_t[]> rows_;  // the lanes' bytes, interleaved: four bytes of each lane in
                                     // turn
  std::vector<Piece> pieces_;
  size_t room_ = 0;
};

}  // namespace stream
