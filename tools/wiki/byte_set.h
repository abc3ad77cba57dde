// SPDX-License-Identifier: MIT
// A set of bytes and the search for the first of them, which every pass over wikitext uses: sixteen
// bytes at a time with SSE2 (every x86-64 has it), else one by one.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <string_view>
#include <utility>

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
  /// Whether it has few enough bytes for find_in.
  constexpr bool listed() const { return count_ <= list_.size(); }
  constexpr size_t count() const { return count_; }
  constexpr char byte(size_t i) const { return list_[i]; }

 private:
  bool member_[256] = {};
  std::array<char, 16> list_ = {};
  size_t count_ = 0;
};

#if defined(__SSE2__)
/// Which of sixteen bytes are in kSet: all bits set in those, none in the others.
template <const ByteSet& kSet>
inline __m128i members(__m128i bytes) {
  static_assert(kSet.listed());
  const auto any = [&]<size_t... kAt>(std::index_sequence<kAt...>) {
    __m128i found = _mm_setzero_si128();
    ((found = _mm_or_si128(found, _mm_cmpeq_epi8(bytes, _mm_set1_epi8(kSet.byte(kAt))))), ...);
    return found;
  };
  return any(std::make_index_sequence<kSet.count()>());
}

/// Which of sixteen bytes are ASCII control characters, except DEL.
inline __m128i controls(__m128i bytes) {
  return _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1F)), bytes);
}
#endif

/// The place of the first byte of kSet, or with kControls of the first control character, from `at`
/// on; text.size() if there is none.
template <const ByteSet& kSet, bool kControls = false>
inline size_t find_in(std::string_view text, size_t at) {
#if defined(__SSE2__)
  constexpr size_t kWidth = 16;
  for (; at + kWidth <= text.size(); at += kWidth) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text.data() + at));
    __m128i found = members<kSet>(bytes);
    if constexpr (kControls) found = _mm_or_si128(found, controls(bytes));
    const auto mask = static_cast<unsigned>(_mm_movemask_epi8(found));
    if (mask != 0) return at + static_cast<size_t>(std::countr_zero(mask));
  }
#endif
  const auto stops = [&](char c) {
    return kSet.has(c) || (kControls && static_cast<unsigned char>(c) <= 0x1F);
  };
  while (at < text.size() && !stops(text[at])) ++at;
  return at;
}

}  // namespace wiki
