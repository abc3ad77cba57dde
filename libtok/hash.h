// SPDX-License-Identifier: MIT
// The hash of bytes that tables of this library are ordered by; it is in no file. Not here: that of
// the short pieces' keys, which vectors compute (hot_entry.h). Included by .cc files only.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tok {

/// One step: what is known so far, and eight bytes.
constexpr uint64_t hash_step(uint64_t hash, uint64_t word) noexcept {
  return (hash ^ word) * 0xD6E8FEB86659FD93u;
}
constexpr uint64_t hash_begin(size_t size, uint64_t seed) noexcept {
  return size * 0x9E3779B97F4A7C15u + seed;
}
constexpr uint64_t hash_end(uint64_t hash) noexcept { return hash ^ hash >> 32; }

/// Of up to eight bytes, given as a word with zeros above them: every step can be undone, so that
/// two of one size never have one hash.
constexpr uint64_t hash_word(uint64_t word, size_t size, uint64_t seed = 0) noexcept {
  return hash_end(hash_step(hash_begin(size, seed), word));
}

/// Of any bytes; another seed gives another order.
inline uint64_t hash_bytes(std::string_view bytes, uint64_t seed = 0) noexcept {
  uint64_t hash = hash_begin(bytes.size(), seed), word;
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (; left > 8; at += 8, left -= 8) {
    std::memcpy(&word, at, 8);
    hash = std::rotl(hash_step(hash, word), 29);
  }
  word = 0;
  std::memcpy(&word, at, left);
  return hash_end(hash_step(hash, word));
}

}  // namespace tok
