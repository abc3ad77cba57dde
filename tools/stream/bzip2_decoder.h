// SPDX-License-Identifier: MIT
// Room: tools/stream. A bzip2 block decoder of our own, in three steps, because the last but one
// waits for memory: undoing the Burrows-Wheeler transform is a walk through a table of 3.6 MB, each
// step at an address that the step before gave. Several blocks walk at the same time.
// It takes only what is certain: for anything odd it says no, and libbz2 decides
// (bzip2_blocks.cc). Source of the layout: the bzip2 1.0 sources, decompress.c.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stream {

/// One block between the steps.
class Bzip2Walk {
 public:
  /// Reads the block of `num_bits` bits and links its bytes. False: not a good block, or one of
  /// the old, randomised kind.
  bool read(std::string_view bits, int64_t num_bits, char level);

  /// Undoes run lengths and checks the sum. False: the sum is wrong; `over_limit` says whether
  /// only because there are more than `most_bytes`.
  bool finish(std::string& out, size_t most_bytes, bool& over_limit) const;

  size_t size() const { return size_; }

 private:
  friend void follow(std::span<Bzip2Walk* const> walks);

  struct Free {
    void operator()(uint32_t* table) const { std::free(table); }
  };

  std::unique_ptr<uint32_t[], Free> links_;  // byte, and 24 bits of the next one's place
  std::unique_ptr<uint8_t[]> bytes_;         // in order, runs of four still followed by a count
  size_t size_ = 0;
  uint32_t place_ = 0;
  uint32_t sum_ = 0;
};

/// Walks all at once; each read() before and finish() after is its own.
void follow(std::span<Bzip2Walk* const> walks);

}  // namespace stream
