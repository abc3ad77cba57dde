// SPDX-License-Identifier: MIT
// A set of bytes and the search for the first of them, which every pass over wikitext lives on:
// sixteen bytes at a time where the processor has SSE2 (every x86-64 has), else one by one.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <string_view>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace wiki {

/// A set of at most 16 bytes, for find_in; of any number for has().
class ByteSet {
 public:
  constexpr explicit ByteSet(std::string_view bytes) {
    for (const char c : bytes) {
      member_[static_cast<unsigned char>(c)] = true;
      if (count_ < list_.size()) list_[count_] = c;
      ++count_;
    }
  }
  constexpr bool has(char c) const { return member_[static_cast<unsigned char>(c)]; }
  /// Whether sixteen bytes at a time are worth it.
  constexpr bool listed() const { return count_ <= list_.size(); }
  constexpr size_t count() const { return count_; }
  constexpr char byte(size_t i) const { return list_[i]; }

 private:
  bool member_[256] = {};
  std::array<char, 16> list_ = {};
  size_t count_ = 0;
};

/// Where the first byte of `set`, or with kControls the first control character, stands from `at`
/// on; text.size() if there is none.
template <bool kControls = false>
inline size_t find_in(std::string_view text, size_t at, const ByteSet& set) {
#if defined(__SSE2__)
  constexpr size_t kWidth = 16;
  const __m128i highest = _mm_set1_epi8(0x1F);
  while (set.listed() && at + kWidth <= text.size()) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text.data() + at));
    __m128i found = _mm_setzero_si128();
    if constexpr (kControls) found = _mm_cmpeq_epi8(_mm_min_epu8(bytes, highest), bytes);
    for (size_t i = 0; i < set.count(); ++i)
      found = _mm_or_si128(found, _mm_cmpeq_epi8(bytes, _mm_set1_epi8(set.byte(i))));
    const auto mask = static_cast<unsigned>(_mm_movemask_epi8(found));
    if (mask != 0) return at + static_cast<size_t>(std::countr_zero(mask));
    at += kWidth;
  }
#endif
  const auto stops = [&](char c) {
    return set.has(c) || (kControls && static_cast<unsigned char>(c) <= 0x1F);
  };
  while (at < text.size() && !stops(text[at])) ++at;
  return at;
}

}  // namespace wiki
