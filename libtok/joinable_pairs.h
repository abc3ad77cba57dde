// SPDX-License-Identifier: MIT
// Which bytes, and which characters of three bytes, some merge may join: the masks use it to cut
// text inside its pieces. Not here: how it is built from a vocabulary, and why a cut changes no id
// (ExactCut in merge.h). Includes: context_filter.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "libtok/context_filter.h"

namespace tok {

/// For a character of three bytes, as the left and as the right of two: bits for the right sides of
/// all contexts in which it can be so. Two characters without a common bit share no context.
struct WideSides {
  uint64_t left, right;
};

/// Whether three bytes have the form of a character of three bytes.
inline bool is_wide(const char* at) noexcept {
  return (((at[0] & 0xF0) ^ 0xE0) | ((at[1] & 0xC0) ^ 0x80) | ((at[2] & 0xC0) ^ 0x80)) == 0;
}

/// The low 16 bits of the code point of a character of three bytes.
inline uint16_t wide_number(const char* at) noexcept {
  return static_cast<uint16_t>(at[0] << 12 | (at[1] & 63) << 6 | (at[2] & 63));
}

/// Which two neighbouring bytes some merge may join: made by ExactCut.
struct JoinablePairs {
  uint64_t pairs[65536 / 64] = {};  ///< bit first * 256 + second
  uint16_t wide[64] = {};  ///< the same for 0x80 + i before 0xE0 + bit, for wide characters
  ContextFilter contexts;  ///< up to three bytes on either side of each position inside a token
  /// For each character of three bytes; empty if not used.
  std::vector<WideSides> wide_sides;
  ContextFilter wide_contexts;  ///< the few of `contexts` in which two such characters can be
  bool asks_contexts = false;   ///< whether `wide_contexts` must be queried as well

  bool joins(uint8_t first, uint8_t second) const noexcept {
    unsigned pair = static_cast<unsigned>(first) << 8 | second;
    return pairs[pair >> 6] >> (pair & 63) & 1;
  }
  void set(uint8_t first, uint8_t second) noexcept {
    unsigned pair = static_cast<unsigned>(first) << 8 | second;
    pairs[pair >> 6] |= uint64_t{1} << (pair & 63);
    if ((first & 0xC0) == 0x80 && (second & 0xF0) == 0xE0) {
      wide[first & 63] = static_cast<uint16_t>(wide[first & 63] | 1u << (second & 15));
    }
  }
  /// Whether some merge may join two characters of three bytes each, the second of which begins at
  /// `second`. True for any other bytes before it. Range: three bytes are readable on either side.
  bool joins_wide(const uint8_t* second) const noexcept;
  /// Of the places in the bits of `asked`, counted from `from`, those where joins_wide() is false.
  uint64_t wide_cuts(const char* from, uint64_t asked) const noexcept;
};

}  // namespace tok
