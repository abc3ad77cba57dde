// SPDX-License-Identifier: MIT
// The hash of bytes for this library's tables; no file contains it. Not here: the hash of short
// pieces' keys, which is computed with vectors (hot_entry.h). Included by .cc files only.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tok {

/// One step: adds eight bytes to the hash so far.
constexpr uint64_t hash_step(uint64_t hash, uint64_t word) noexcept {
  return (hash ^ word) * 0xD6E8FEB86659FD93u;
}
constexpr uint64_t hash_begin(size_t size, uint64_t seed) noexcept {
  return size * 0x9E3779B97F4A7C15u + seed;
}
constexpr uint64_t hash_end(uint64_t hash) noexcept { return hash ^ hash >> 32; }

/// Hash of up to eight bytes, given as a word with zeros above them. Every step is invertible, so
/// different words of the same size have different hashes.
constexpr uint64_t hash_word(uint64_t word, size_t size, uint64_t seed = 0) noexcept {
  return hash_end(hash_step(hash_begin(size, seed), word));
}

/// Hash of any bytes; another seed gives another hash function.
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
