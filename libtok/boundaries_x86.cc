// SPDX-License-Identifier: MIT
// Boundary masks for x86: two scans with the bit operations of boundary_rules.h, for AVX2 and
// AVX-512. They differ in how bytes are classified and how the positions of bits are written. Their
// code is similar but not shared, because they inline different intrinsics, and a function compiled
// for one instruction set cannot be a parameter of another's. Includes: boundaries.h,
// boundary_rules.h. Every function names its instruction set; the file is compiled without any.
#include <array>
#include <bit>
#include <cstring>

#include "libtok/boundaries.h"
#include "libtok/boundary_rules.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "libtok/boundary_two.h"
#include "libtok/boundary_wide.h"
#endif

namespace tok {
namespace {

#if defined(__x86_64__)

/// A scan stops when the buffer has less room than this: a block's starts, one pending start, the
/// segment's end, padding of its group, and what vector stores write past them.
constexpr size_t kRoom = 64 + 2 + 3 + 32;
static_assert(BoundaryScan::kMinBatch > kRoom);

/// Text is prefetched this many bytes ahead: processors by themselves prefetch only within a page.
constexpr size_t kFetchAhead = 1024;

/// 0, 1, ... 63.
constexpr std::array<uint8_t, 64> kByteIndex = [] {
  std::array<uint8_t, 64> index{};
  for (size_t i = 0; i < 64; ++i) index[i] = static_cast<uint8_t>(i);
  return index;
}();

#endif  // __x86_64__

}  // namespace

#if defined(__x86_64__)

/// The scans: static members because they are friends of BoundaryScan.
struct BlockWalk {
  // AVX2

  [[gnu::target("avx2,bmi,bmi2,lzcnt,popcnt"), gnu::always_inline]] static inline uint64_t mask_of(
      __m256i low, __m256i high) noexcept {
    return static_cast<uint32_t>(_mm256_movemask_epi8(low)) |
           static_cast<uint64_t>(static_cast<uint32_t>(_mm256_movemask_epi8(high))) << 32;
  }

  /// Bytes in first..first+span.
  [[gnu::target("avx2,bmi,bmi2,lzcnt,popcnt"), gnu::always_inline]] static inline __m256i in_range(
      __m256i bytes, char first, char span) noexcept {
    __m256i shifted = _mm256_sub_epi8(bytes, _mm256_set1_epi8(first));
    return _mm256_cmpeq_epi8(_mm256_min_epu8(shifted, _mm256_set1_epi8(span)), shifted);
  }

  template <Rules R>
  [[gnu::target("avx2,bmi,bmi2,lzcnt,popcnt"), gnu::always_inline]] static inline BlockMasks
  classify_avx2(std::string_view text, const JoinablePairs* joinable, size_t base,
                BlockMasks& spill) noexcept {
    alignas(32) uint8_t tail[64] = {};
    const char* from = text.data() + base;
    _mm_prefetch(from + kFetchAhead, _MM_HINT_T0);
    size_t left = text.size() - base;
    if (left < 64) [[unlikely]] {
      std::memcpy(tail, from, left);
      from = reinterpret_cast<const char*>(tail);
    }
    __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32));
    const __m256i case_bit = _mm256_set1_epi8(0x20);
    BlockMasks m{};
    m.letter = mask_of(in_range(_mm256_or_si256(a, case_bit), 'a', 25),
                       in_range(_mm256_or_si256(b, case_bit), 'a', 25));
    m.number = mask_of(in_range(a, '0', 9), in_range(b, '0', 9));
    m.blank = mask_of(_mm256_cmpeq_epi8(a, case_bit), _mm256_cmpeq_epi8(b, case_bit));
    m.white = m.blank | mask_of(in_range(a, 9, 4), in_range(b, 9, 4));
    const __m256i quote = _mm256_set1_epi8('\'');
    m.quote = mask_of(_mm256_cmpeq_epi8(a, quote), _mm256_cmpeq_epi8(b, quote));
    if constexpr (R.lines) {
      const __m256i lf = _mm256_set1_epi8('\n'), cr = _mm256_set1_epi8('\r');
      m.newline = mask_of(_mm256_or_si256(_mm256_cmpeq_epi8(a, lf), _mm256_cmpeq_epi8(a, cr)),
                          _mm256_or_si256(_mm256_cmpeq_epi8(b, lf), _mm256_cmpeq_epi8(b, cr)));
    }
    if constexpr (R.cased) {
      m.upper = mask_of(in_range(a, 'A', 25), in_range(b, 'A', 25));
      m.lower = m.letter & ~m.upper;
      const __m256i slash = _mm256_set1_epi8('/');
      m.slash = mask_of(_mm256_cmpeq_epi8(a, slash), _mm256_cmpeq_epi8(b, slash));
    }
    if constexpr (R.ascii_sign) {
      m.ascii = ~mask_of(a, b);
      const __m256i rubout = _mm256_set1_epi8(0x7F);
      m.hard = (mask_of(in_range(a, 0, 31), in_range(b, 0, 31)) & ~m.white) |
               mask_of(_mm256_cmpeq_epi8(a, rubout), _mm256_cmpeq_epi8(b, rubout));
    }
    uint64_t high = mask_of(a, b);
    if ((high | spill.inside) != 0) {
      high &= ~spill.inside;
      add_masks<R>(m, spill);
      BlockMasks more;
      classify_high<R>(text, joinable, base, high, more, spill);
      add_masks<R>(m, more);
    }
    if (left < 64) [[unlikely]]
      end_masks(m, left);
    return m;
  }

  /// Writes the positions of the starts, eight at a time.
  [[gnu::target("avx2,bmi,bmi2,lzcnt,popcnt"), gnu::always_inline]] static inline uint32_t*
  harvest_avx2(uint64_t starts, size_t base, uint32_t* out) noexcept {
    uint32_t from = static_cast<uint32_t>(base);
    uint32_t* end = out + std::popcount(starts);
    while (out < end) {
      for (int i = 0; i < 8; ++i) {
        out[i] = from + static_cast<uint32_t>(_tzcnt_u64(starts));
        starts = _blsr_u64(starts);
      }
      out += 8;
    }
    return end;
  }

  template <Rules R>
  [[gnu::target("avx2,bmi,bmi2,lzcnt,popcnt")]] static size_t avx2(BoundaryScan& self,
                                                                   uint32_t* ends,
                                                                   size_t capacity) noexcept {
    std::string_view text = self.text_;
    BlockCarry carry = self.carry_;
    BlockMasks now = self.masks_;
    size_t base = self.base_, origin = self.origin_;
    uint32_t* out = ends;
    const uint32_t* full = ends + (capacity - kRoom);
    for (bool more = true; more && out <= full;) {
      if (base == 0) [[unlikely]]
        now = classify_avx2<R>(text, self.joinable_, 0, carry.spill);
      const bool last = base + 64 >= text.size();
      BlockMasks next = kEndMasks;
      if (!last) [[likely]]
        next = classify_avx2<R>(text, self.joinable_, base + 64, carry.spill);
      uint64_t starts = block_starts<R>(text, base, now, next, carry, out);
      if (R.has_hard() && (now.hard | carry.hard) != 0) [[unlikely]] {
        const size_t at = self.cut_plainly(carry.last - origin, base + 64, out);
        text.remove_prefix(at);
        origin += at;
        self.text_ = text;
        self.origin_ = origin;
        base = 0;
        carry = BlockCarry{.last = origin, .origin = origin};
        if (!text.empty()) continue;
      } else {
        out = harvest_avx2(starts, origin + base, out);
        carry.last = carry.newest;
        now = next;
        base += 64;
        if (!last) [[likely]]
          continue;
        out = end_segment<R>(origin + text.size(), carry, out);
      }
      more = self.next_text(ends, out);
      self.done_ = !more;
      text = self.text_;
      base = 0;
      origin = self.origin_;
      carry = BlockCarry{.last = origin, .origin = origin};
    }
    self.carry_ = carry;
    self.masks_ = now;
    self.base_ = base;
    return static_cast<size_t>(out - ends);
  }

  // AVX-512

  /// Blocks with fewer bytes that are not ASCII are classified character by character.
  static constexpr int kManyHigh = 4;

  /// classify_high for blocks with many such characters: those of two bytes and the common ones of
  /// three, in East Asian text and in typeset English, all at once; the rest one by one.
  template <Rules R>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt"),
    gnu::noinline]] static void
  classify_wide(std::string_view text, const JoinablePairs* joinable, size_t base, __m512i bytes,
                uint64_t rest, BlockMasks& masks, BlockMasks& spill) noexcept {
    const char* from = text.data() + base;
    const size_t left = text.size() - base;
    BlockMasks in{}, over{};
    const __m512i second = _mm512_maskz_loadu_epi8(low_bits(left - 1), from + 1);
    const uint64_t twos = classify_two<R>(bytes, second, in, over);
    rest &= ~(twos | twos << 1);
    if (rest != 0) {
      const __m512i third = _mm512_maskz_loadu_epi8(low_bits(left < 2 ? 0 : left - 2), from + 2);
      const uint64_t letters = wide_letters(bytes, second, third);
      const uint64_t known = letters | wide_signs(bytes, second, third);
      in.letter |= letters | letters << 1 | letters << 2;
      in.inside |= known << 1 | known << 2;
      over.letter |= (letters >> 62 & 1) | (letters >> 63) * 3;
      over.inside |= (known >> 62 & 1) | (known >> 63) * 3;
      if constexpr (R.cjk) {
        in.cjk = known & wide_cjk(bytes, second, third);
        over.cjk = (in.cjk >> 62 & 1) | (in.cjk >> 63) * 3;
        in.cjk |= in.cjk << 1 | in.cjk << 2;
      }
      if (joinable != nullptr) {
        in.cut = wide_cuts(*joinable, from, base, left, bytes, second, third, known);
      }
      rest &= ~(known | known << 1 | known << 2);
      if (rest != 0) {
        BlockMasks others, others_over;
        classify_high<R>(text, joinable, base, rest, others, others_over);
        add_masks<R>(in, others);
        add_masks<R>(over, others_over);
      }
    }
    set_masks<R>(masks, in);
    set_masks<R>(spill, over);
  }

  /// Constants for comparing the bytes of a block, kept in registers: otherwise compilers load them
  /// again for each block.
  struct ClassBytes {
    __m512i blank, from_a, letters, from_0, digits, from_tab, controls, quote;
  };
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt"),
    gnu::always_inline]] static inline __m512i
  kept(int byte) noexcept {
    __m512i bytes = _mm512_set1_epi8(static_cast<char>(byte));
    asm("" : "+v"(bytes));
    return bytes;
  }
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt"),
    gnu::always_inline]] static inline ClassBytes
  class_bytes() noexcept {
    return {.blank = kept(' '),
            .from_a = kept(-'a'),
            .letters = kept('z' - 'a'),
            .from_0 = kept(-'0'),
            .digits = kept('9' - '0'),
            .from_tab = kept(-'\t'),
            .controls = kept('\r' - '\t'),
            .quote = kept('\'')};
  }

  template <Rules R>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt"),
    gnu::always_inline]] static inline BlockMasks
  classify_avx512(const ClassBytes& bytes, std::string_view text, const JoinablePairs* joinable,
                  size_t base, BlockMasks& spill) noexcept {
    const char* from = text.data() + base;
    size_t left = text.size() - base;
    _mm_prefetch(from + kFetchAhead, _MM_HINT_T0);
    // A masked load does not access masked-out bytes, so the text may end at the end of a page.
    __m512i v =
        left < 64 ? _mm512_maskz_loadu_epi8(low_bits(left), from) : _mm512_loadu_si512(from);
    BlockMasks m{};
    m.letter = _mm512_cmple_epu8_mask(
        _mm512_add_epi8(_mm512_or_si512(v, bytes.blank), bytes.from_a), bytes.letters);
    m.number = _mm512_cmple_epu8_mask(_mm512_add_epi8(v, bytes.from_0), bytes.digits);
    m.blank = _mm512_cmpeq_epi8_mask(v, bytes.blank);
    m.white = m.blank | _mm512_cmple_epu8_mask(_mm512_add_epi8(v, bytes.from_tab), bytes.controls);
    m.quote = _mm512_cmpeq_epi8_mask(v, bytes.quote);
    if constexpr (R.lines) {
      m.newline = bytes_equal(v, '\n') | bytes_equal(v, '\r');
    }
    if constexpr (R.cased) {
      m.upper = bytes_between(v, 'A', 'Z');
      m.lower = m.letter & ~m.upper;
      m.slash = bytes_equal(v, '/');
    }
    if constexpr (R.ascii_sign) {
      m.ascii = ~_mm512_movepi8_mask(v);
      m.hard = (bytes_between(v, 0, 31) & ~m.white) | bytes_equal(v, 0x7F);
    }
    uint64_t high = _mm512_movepi8_mask(v);
    if ((high | spill.inside) != 0) {
      high &= ~spill.inside;
      add_masks<R>(m, spill);
      BlockMasks more;
      if (std::popcount(high) >= kManyHigh) {
        classify_wide<R>(text, joinable, base, v, high, more, spill);
      } else {
        classify_high<R>(text, joinable, base, high, more, spill);
      }
      add_masks<R>(m, more);
    }
    if (left < 64) [[unlikely]]
      end_masks(m, left);
    return m;
  }

  /// Writes the positions of the starts, sixteen bits of the mask at a time.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt"),
    gnu::always_inline]] static inline uint32_t*
  harvest_avx512bw(uint64_t starts, size_t base, uint32_t* out) noexcept {
    const __m512i sixteen = _mm512_set1_epi32(16);
    __m512i at =
        _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(base)),
                         _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    for (int quarter = 0; quarter < 4; ++quarter) {
      auto bits = static_cast<uint16_t>(starts >> 16 * quarter);
      _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(bits, at));
      out += std::popcount(bits);
      at = _mm512_add_epi32(at, sixteen);
    }
    return out;
  }

  /// The same with byte compression, one for all sixty-four bits; half of the positions are always
  /// written, since texts have about sixteen starts in a block. The instruction is inline assembly,
  /// so that one scan can be compiled for both levels. Range: SimdLevel::avx512vbmi2.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt"),
    gnu::always_inline]] static inline uint32_t*
  harvest_avx512vbmi2(uint64_t starts, size_t base, uint32_t* out) noexcept {
    __m512i at;
    asm("vpcompressb %1, %0%{%2%}%{z%}"
        : "=v"(at)
        : "v"(_mm512_loadu_si512(kByteIndex.data())), "Yk"(starts));
    const __m512i from = _mm512_set1_epi32(static_cast<int>(base));
    int count = std::popcount(starts);
    __m512i wide = _mm512_maskz_cvtepu8_epi32(0xFFFF, _mm512_maskz_extracti32x4_epi32(0xF, at, 0));
    _mm512_storeu_si512(out, _mm512_add_epi32(from, wide));
    wide = _mm512_maskz_cvtepu8_epi32(0xFFFF, _mm512_maskz_extracti32x4_epi32(0xF, at, 1));
    _mm512_storeu_si512(out + 16, _mm512_add_epi32(from, wide));
    if (count > 32) [[unlikely]] {
      wide = _mm512_maskz_cvtepu8_epi32(0xFFFF, _mm512_maskz_extracti32x4_epi32(0xF, at, 2));
      _mm512_storeu_si512(out + 32, _mm512_add_epi32(from, wide));
      wide = _mm512_maskz_cvtepu8_epi32(0xFFFF, _mm512_maskz_extracti32x4_epi32(0xF, at, 3));
      _mm512_storeu_si512(out + 48, _mm512_add_epi32(from, wide));
    }
    return out + count;
  }

  template <Rules R, bool kCompressBytes>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt")]] static size_t avx512(
      BoundaryScan& self, uint32_t* ends, size_t capacity) noexcept {
    std::string_view text = self.text_;
    BlockCarry carry = self.carry_;
    BlockMasks now = self.masks_;
    size_t base = self.base_, origin = self.origin_;
    uint32_t* out = ends;
    const uint32_t* full = ends + (capacity - kRoom);
    const ClassBytes bytes = class_bytes();
    for (bool more = true; more && out <= full;) {
      if (base == 0) [[unlikely]]
        now = classify_avx512<R>(bytes, text, self.joinable_, 0, carry.spill);
      const bool last = base + 64 >= text.size();
      BlockMasks next = kEndMasks;
      if (!last) [[likely]]
        next = classify_avx512<R>(bytes, text, self.joinable_, base + 64, carry.spill);
      uint64_t starts = block_starts<R>(text, base, now, next, carry, out);
      if (R.has_hard() && (now.hard | carry.hard) != 0) [[unlikely]] {
        const size_t at = self.cut_plainly(carry.last - origin, base + 64, out);
        text.remove_prefix(at);
        origin += at;
        self.text_ = text;
        self.origin_ = origin;
        base = 0;
        carry = BlockCarry{.last = origin, .origin = origin};
        if (!text.empty()) continue;
      } else {
        if constexpr (kCompressBytes) {
          out = harvest_avx512vbmi2(starts, origin + base, out);
        } else {
          out = harvest_avx512bw(starts, origin + base, out);
        }
        carry.last = carry.newest;
        now = next;
        base += 64;
        if (!last) [[likely]]
          continue;
        out = end_segment<R>(origin + text.size(), carry, out);
      }
      more = self.next_text(ends, out);
      self.done_ = !more;
      text = self.text_;
      base = 0;
      origin = self.origin_;
      carry = BlockCarry{.last = origin, .origin = origin};
    }
    self.carry_ = carry;
    self.masks_ = now;
    self.base_ = base;
    return static_cast<size_t>(out - ends);
  }

  template <Rules R>
  static BoundaryScan::Walk of_level(SimdLevel level) noexcept {
    if (level == SimdLevel::avx512vbmi2) return avx512<R, true>;
    if (level == SimdLevel::avx512bw) return avx512<R, false>;
    return avx2<R>;
  }

  /// The scan for a pre-tokenizer; null if it has no masks.
  static BoundaryScan::Walk find(const PreTokenizer& pretokenizer, SimdLevel level) noexcept {
    if (level == SimdLevel::plain) return nullptr;
    if (pretokenizer == make_pretokenizer(Family::gpt2)) return of_level<kGpt2>(level);
    if (pretokenizer == make_pretokenizer(Family::digits, Family::gpt2)) {
      return of_level<kDigitsGpt2>(level);
    }
    if (pretokenizer == make_pretokenizer(Family::cl100k)) return of_level<kCl100k>(level);
    if (pretokenizer == make_pretokenizer(Family::llama3)) return of_level<kLlama3>(level);
    if (pretokenizer == make_pretokenizer(Family::qwen2)) return of_level<kQwen2>(level);
    if (pretokenizer == make_pretokenizer(Family::qwen35)) return of_level<kQwen35>(level);
    if (pretokenizer == make_pretokenizer(Family::o200k)) return of_level<kO200k>(level);
    if (pretokenizer == make_pretokenizer(Family::tekken)) return of_level<kTekken>(level);
    if (pretokenizer ==
        make_pretokenizer(Family::digit_triples, Family::cjk_runs, Family::deepseek3)) {
      return of_level<kDeepseek3>(level);
    }
    return nullptr;
  }
};

#else

/// No masks on this architecture.
struct BlockWalk {
  static BoundaryScan::Walk find(const PreTokenizer&, SimdLevel) noexcept { return nullptr; }
};

#endif

bool has_boundary_masks(const PreTokenizer& pretokenizer) noexcept {
  return BlockWalk::find(pretokenizer, SimdLevel::avx2) != nullptr;
}

BoundaryScan::BoundaryScan(const PreTokenizer& pretokenizer, std::string_view segment,
                           SimdLevel level, const JoinablePairs* joinable) noexcept
    : walk_(BlockWalk::find(pretokenizer, level)),
      done_(segment.empty()),
      text_(segment),
      joinable_(joinable),
      cutter_(pretokenizer, segment) {
  if (walk_ == nullptr) walk_ = walk_plain;
}

BoundaryScan::BoundaryScan(const PreTokenizer& pretokenizer, std::string_view all, TextRow& row,
                           SimdLevel level, const JoinablePairs* joinable) noexcept
    : BoundaryScan(pretokenizer, all.substr(0, row.ends.empty() ? 0 : row.ends[0]), level,
                   joinable) {
  row_ = &row;
}

}  // namespace tok
