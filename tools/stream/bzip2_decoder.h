// SPDX-License-Identifier: MIT
// A bzip2 block decoder of our own. Undoing the Burrows-Wheeler transform is a walk through a table
// of 3.6 MB, each step at an address that the step before gave, so it waits for memory. Here the
// cycle of the walk is cut at places chosen beforehand, and 32 of the pieces are walked at the same
// time; which piece follows which is known when all have ended.
// It takes only what is certain: for anything odd it says no, and libbz2 decides
// (bzip2_blocks.cc). What comes before the walk: bzip2_symbols.h.
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

  /// Decodes `block` into `out`. False: not a good block, one of the old, randomised kind, a wrong
  /// sum, or more than `most_bytes`, which alone sets `over_limit`.
  bool decode(const Bzip2Block& block, size_t most_bytes, std::string& out, bool& over_limit);

 private:
  // Bytes from one place where the cycle is cut to the next.
  struct Piece {
    size_t lane = 0;
    size_t begin = 0;  // rows of that lane
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
  Bzip2Bytes bytes_;                        // by context; from join() on in their order
  std::unique_ptr<uint8_t[]> byte_memory_;  // of bytes_
  // Of each place: its byte, 20 bits of the place that follows, and a mark where a piece begins.
  std::unique_ptr<uint32_t[], Free> links_;
  std::unique_ptr<uint8_t[]> rows_;  // what the lanes found: four bytes of each, again and again
  std::vector<Piece> pieces_;
  size_t room_ = 0;
};

}  // namespace stream
