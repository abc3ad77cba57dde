// SPDX-License-Identifier: MIT
// Room: tools/stream. Parts of an input that are worked on at once, each of which gives pieces; the
// pieces come out in the order of the parts. Where pipeline.h holds the whole of an item's result,
// here a part may be of any size: pieces that wait share a limit on memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/stream/policy.h"

namespace stream {

/// Some documents of a part, ready to be written.
struct Piece {
  std::string bytes;
  int64_t documents = 0;  ///< good and refused
  std::vector<PlacedRefusal> refusals;
};

/// Takes a piece over; may wait until there is room for it.
using GivePiece = std::function<void(Piece&&)>;

/// One part: gives its pieces, in order. Runs once, on any thread.
using PartWork = std::function<void(const GivePiece&)>;

/// The stages of run_ordered_parts.
struct OrderedPartsJob {
  int64_t threads = 1;         ///< that work on parts; 1: the calling one alone does all
  int64_t memory = 256 << 20;  ///< bytes of pieces that may wait, and one piece of the first part
  /// The next part; an empty function at the end. One call at a time.
  std::function<PartWork()> source;
  /// Takes the pieces, in order. One call at a time, on the calling thread.
  std::function<void(const Piece&)> sink;
};

/// Runs all parts. An exception of any stage ends the run and is thrown again here: of those of
/// parts the earliest, after the pieces before it were sunk.
void run_ordered_parts(const OrderedPartsJob& job);

}  // namespace stream
