// Boundary masks for x86: one walk per level over the same bit algebra.
// The algebra is plain C++ on 64-bit words and is inlined into each walk, so that it is compiled
// for that walk's instructions; only classification and the harvest of bit positions differ between
// levels. A start is the first byte of a piece. Every rule stands at its line as a statement about
// neighbouring characters; the patterns are in pretokenize.cc.
// Includes: boundaries.h, unicode.h.
// SPDX-License-Identifier: MIT
#include <array>
#include <bit>
#include <cstring>

#include "libtok/boundaries.h"
#include "libtok/unicode.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tok {
namespace {

#if defined(__x86_64__)

/// What tells one pattern from another, as far as masks are concerned.
struct Rules {
  bool lines = false;         ///< cl100k's form: newlines, prefixes of words, any-case contractions
  int digits = 0;             ///< N{1,digits}; 0: runs
  bool digits_first = false;  ///< Digits(individual) cuts before the pattern does
  bool marks_are_letters = false;
  bool whole_tail = false;  ///< white space up to the text's end is one piece
};

constexpr Rules kGpt2{};
constexpr Rules kDigitsGpt2{.digits_first = true};
constexpr Rules kCl100k{.lines = true, .digits = 3, .whole_tail = true};
constexpr Rules kLlama3{.lines = true, .digits = 3};
constexpr Rules kQwen2{.lines = true, .digits = 1};
constexpr Rules kQwen35{.lines = true, .digits = 1, .marks_are_letters = true};

/// A walk stops before the buffer has less room than this: a block's starts, one pending start, the
/// segment's end, and what a vector store writes past them.
constexpr size_t kRoom = 64 + 2 + 16;
static_assert(BoundaryScan::kMinBatch > kRoom);

/// What lies past the end of the text.
constexpr BlockMasks kEndMasks{.letter = 0,
                               .number = 0,
                               .white = ~uint64_t{0},
                               .blank = 0,
                               .newline = 0,
                               .quote = 0,
                               .inside = 0,
                               .cut = 0};

/// 0, 1, ... 63.
constexpr std::array<uint8_t, 64> kByteIndex = [] {
  std::array<uint8_t, 64> index{};
  for (size_t i = 0; i < 64; ++i) index[i] = static_cast<uint8_t>(i);
  return index;
}();

/// The first `n` bits, n in 0..64.
[[gnu::always_inline]] inline uint64_t low_bits(size_t n) noexcept {
  return n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1;
}

/// All ones or all zeros.
[[gnu::always_inline]] inline uint64_t all_if(bool condition) noexcept {
  return uint64_t{0} - static_cast<uint64_t>(condition);
}

/// decode(), with the common three-byte forms first.
[[gnu::always_inline]] inline CodePoint decode_high(std::string_view text, size_t at) noexcept {
  const auto* p = reinterpret_cast<const uint8_t*>(text.data()) + at;
  if ((p[0] & 0xF0) == 0xE0 && at + 3 <= text.size()) [[likely]] {
    char32_t c = (p[0] & 15u) << 12 | (p[1] & 63u) << 6 | (p[2] & 63u);
    bool whole = (p[1] & 0xC0) == 0x80 && (p[2] & 0xC0) == 0x80;
    if (whole && c >= 0x800 && (c & 0xF800) != 0xD800) [[likely]]
      return {c, 3};
  }
  return decode(text, at);
}

/// Adds the characters of a block that are not ASCII to its masks. Continuation bytes that belong
/// to no well-formed character stay signs. `high`: bytes >= 0x80.
template <Rules R>
[[gnu::noinline]] void classify_high(std::string_view text, const uint64_t* joinable, size_t base,
                                     uint64_t high, BlockMasks& masks, BlockMasks& spill) noexcept {
  constexpr ClassSet kWord = R.marks_are_letters ? kLetter | kMark : kLetter;
  uint64_t letters = spill.letter, numbers = spill.number, whites = spill.white;
  uint64_t insides = spill.inside;
  uint64_t todo = high & ~spill.inside;
  spill = BlockMasks{};
  while (todo != 0) {
    int at = std::countr_zero(todo);
    CodePoint c = decode_high(text, base + static_cast<size_t>(at));
    uint64_t bytes = low_bits(c.length);
    uint64_t cut = 0;
    if (joinable != nullptr && c.length >= 3 && base + static_cast<size_t>(at) != 0) {
      const char* p = text.data() + base + at;
      unsigned pair =
          static_cast<unsigned>(static_cast<uint8_t>(p[-1])) << 8 | static_cast<uint8_t>(p[0]);
      cut = (~joinable[pair >> 6] >> (pair & 63) & 1) << at;
    }
    uint64_t here = bytes << at;
    todo &= ~here;
    ClassSet set = class_of(c.value);
    uint64_t letter = all_if(set & kWord), white = all_if(set & kSpace);
    uint64_t number = all_if(R.digits_first ? is_rust_number(c.value) : (set & kNumber) != 0);
    masks.cut |= cut & ~white;  // a white run may have a pending start in it
    letters |= here & letter;
    numbers |= here & number;
    whites |= here & white;
    insides |= here & (here - 1);
    if (at + static_cast<int>(c.length) > 64) {
      uint64_t there = bytes >> (64 - at);
      spill.letter = there & letter;
      spill.number = there & number;
      spill.white = there & white;
      spill.inside = there;
    }
  }
  masks.letter |= letters;
  masks.number |= numbers;
  masks.white |= whites;
  masks.inside |= insides;
}

/// Ends the masks at the end of the text, `size` bytes into the block.
[[gnu::always_inline]] inline void end_masks(BlockMasks& masks, size_t size) noexcept {
  uint64_t keep = low_bits(size);
  masks.letter &= keep;
  masks.number &= keep;
  masks.white |= ~keep;
}

/// White space whose next character is not white, at its first byte: S+(?!\S) gives it back. With
/// digits_first a number after it ends the segment, where nothing is given back.
template <Rules R>
[[gnu::always_inline]] inline uint64_t last_white(const BlockMasks& now,
                                                  const BlockMasks& next) noexcept {
  uint64_t stay = R.digits_first ? now.white | now.number : now.white;
  uint64_t stay_next = R.digits_first ? next.white | next.number : next.white;
  if (((now.white & now.inside) | (next.white & next.inside & 1)) == 0) [[likely]] {
    return now.white & ~(stay >> 1 | stay_next << 63);
  }
  // White space of two or three bytes: its last byte is known; step back to the first.
  using Wide = unsigned __int128;
  Wide inside = Wide{next.inside} << 64 | now.inside;
  Wide last = (Wide{next.white} << 64 | now.white) & ~((Wide{stay_next} << 64 | stay) >> 1);
  for (int step = 0; step < 2; ++step) last = (last & ~inside) | (last & inside) >> 1;
  return static_cast<uint64_t>(last);
}

/// N{1,3} where numbers have several bytes: character by character.
[[gnu::noinline]] inline uint64_t count_triples(uint64_t number, uint64_t inside,
                                                BlockCarry& carry) noexcept {
  uint64_t before = number << 1 | carry.number;
  uint64_t starts = 0;
  for (uint64_t todo = number & ~inside; todo != 0; todo &= todo - 1) {
    uint64_t bit = todo & (0 - todo);
    bool fresh = (before & bit) == 0 || carry.digits == 3;
    if (fresh) starts |= bit;
    carry.digits = fresh ? 1 : carry.digits + 1;
  }
  return starts;
}

/// N{1,3}: the first of a run of numbers and every third after it.
[[gnu::always_inline]] inline uint64_t triple_starts(const BlockMasks& now, const BlockMasks& next,
                                                     BlockCarry& carry) noexcept {
  uint64_t run = now.number;
  if (((run & now.inside) | (run >> 63 & next.inside)) != 0) [[unlikely]] {
    return count_triples(run, now.inside, carry);
  }
  uint64_t starts = run & ~(run << 1 | carry.number);
  if ((run & carry.number) != 0) {
    uint64_t to_next = low_bits(4 - carry.digits);  // up to and with the next start
    if ((run & to_next) == to_next) starts |= to_next ^ to_next >> 1;
  }
  uint64_t three = run & run << 1 & run << 2;
  for (uint64_t s = starts << 3 & three; s != 0; s = s << 3 & three) starts |= s;
  // An unfinished run: its last start is the last of all.
  carry.digits = static_cast<uint64_t>(std::countl_zero(starts | 1)) + 1;
  return starts;
}

/// Bytes of the contraction at text[at], which is an apostrophe; 0 when there is none.
template <Rules R>
size_t contraction_length(std::string_view text, size_t at) noexcept {
  auto letter = [&](size_t i) noexcept -> int {
    if (i >= text.size()) return 0;
    int c = static_cast<uint8_t>(text[i]);
    return R.lines && c >= 'A' && c <= 'Z' ? c + 32 : c;
  };
  int a = letter(at + 1), b = letter(at + 2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if ((b == 'e' && (a == 'r' || a == 'v')) || (a == 'l' && b == 'l')) return 3;
  return R.lines && a == 0xC5 && b == 0xBF ? 3 : 0;  // U+017F folds to s
}

/// Moves the starts behind the apostrophes that begin contractions, given in `quotes`.
template <Rules R>
[[gnu::noinline]] uint64_t cut_contractions(std::string_view text, size_t base, uint64_t quotes,
                                            uint64_t starts, BlockCarry& carry) noexcept {
  for (; quotes != 0; quotes &= quotes - 1) {
    int at = std::countr_zero(quotes);
    size_t length = contraction_length<R>(text, base + static_cast<size_t>(at));
    if (length == 0) continue;
    unsigned __int128 cut = static_cast<unsigned __int128>(1) << (at + static_cast<int>(length));
    unsigned __int128 no_cut = static_cast<unsigned __int128>(2) << at;
    starts = (starts & ~static_cast<uint64_t>(no_cut)) | static_cast<uint64_t>(cut);
    carry.no_cut |= static_cast<uint64_t>(no_cut >> 64);
    carry.cut |= static_cast<uint64_t>(cut >> 64);
  }
  return starts;
}

/// Where an unfinished white run of an earlier block had its last newline so far: a piece starts
/// behind it unless the run goes on to another newline. `last`: the last of a white run, if no
/// newline.
[[gnu::noinline]] inline uint32_t* resolve_pending(uint64_t last, uint64_t indent, uint64_t newline,
                                                   BlockCarry& carry, uint32_t* out) noexcept {
  int run = std::countr_one(indent);
  if (run == 64 && last == 0) return out;
  if (run == 64 || (newline >> run & 1) == 0) *out++ = static_cast<uint32_t>(carry.pending);
  carry.pending = 0;
  return out;
}

/// Starts behind the last newline of a white run that goes on: S*NL+ ends there. `first`: the first
/// of white space after a newline; `last`: the last of a white run, if no newline.
[[gnu::always_inline]] inline uint64_t line_starts(uint64_t first, uint64_t last, uint64_t indent,
                                                   uint64_t newline, size_t base,
                                                   BlockCarry& carry) noexcept {
  uint64_t starts = 0;
  for (; first != 0; first &= first - 1) {
    int at = std::countr_zero(first);
    int end = at + std::countr_one(indent >> at);
    if (end >= 64 && last >> at == 0) {
      carry.pending = base + static_cast<size_t>(at);
    } else if (end >= 64 || (newline >> end & 1) == 0) {
      starts |= first & (0 - first);
    }
  }
  return starts;
}

/// Starts of the patterns in GPT-2's form, before contractions.
template <Rules R>
[[gnu::always_inline]] inline uint64_t gpt2_starts(const BlockMasks& now, const BlockMasks& next,
                                                   BlockCarry& carry) noexcept {
  uint64_t sign = ~(now.letter | now.number | now.white);
  // A run of one class goes on; a blank before a run belongs to it.
  uint64_t same = (now.letter & (now.letter << 1 | carry.letter)) |
                  (now.number & (now.number << 1 | carry.number)) |
                  (sign & (sign << 1 | carry.sign));
  uint64_t starts = ~(now.white | same | now.blank << 1 | carry.blank);
  if constexpr (R.digits_first) starts |= now.number & ~now.inside;
  // White space: the first of a run, and the last when something follows.
  starts |= now.white & ~(now.white << 1 | carry.white);
  starts |= last_white<R>(now, next);
  carry.letter = now.letter >> 63;
  carry.number = now.number >> 63;
  carry.sign = sign >> 63;
  carry.white = now.white >> 63;
  carry.blank = now.blank >> 63;
  return starts;
}

/// Starts of the patterns in cl100k's form, before contractions.
template <Rules R>
[[gnu::always_inline]] inline uint64_t line_family_starts(const BlockMasks& now,
                                                          const BlockMasks& next, size_t base,
                                                          BlockCarry& carry,
                                                          uint32_t*& out) noexcept {
  uint64_t sign = ~(now.letter | now.number | now.white);
  uint64_t after_sign = sign << 1 | carry.sign;
  // Newlines right after signs are theirs.
  uint64_t taken = now.newline & ~(now.newline + (now.newline & (after_sign | carry.taken)));
  uint64_t white = now.white & ~taken, newline = now.newline & ~taken;
  uint64_t indent = now.white & ~now.newline;
  uint64_t after_indent = indent << 1 | carry.indent;
  // A sign begins a piece unless it goes on a run of signs or has a blank before it.
  uint64_t first_sign = sign & ~(after_sign | now.blank << 1 | carry.blank);
  // A run of exactly one sign, at the start of a piece, belongs to the letters after it.
  uint64_t lone = first_sign | (now.inside & carry.lone_sign);
  if ((sign & now.inside) != 0) {
    for (int step = 0; step < 3; ++step) lone |= lone << 1 & now.inside;
  }
  uint64_t letters =
      now.letter & ~(now.letter << 1 | carry.letter | after_indent | lone << 1 | carry.lone_sign);
  uint64_t numbers = R.digits == 1 ? now.number & ~now.inside : triple_starts(now, next, carry);
  // White space: the first of a run, the first after its last newline, and the last of it when it
  // is no newline and something follows.
  uint64_t starts = first_sign | letters | numbers;
  starts |= white & ~(white << 1 | carry.white);
  uint64_t last = last_white<R>(now, next) & indent;
  starts |= last;
  if (carry.pending != 0) [[unlikely]]
    out = resolve_pending(last, indent, newline, carry, out);
  uint64_t after_newline = indent & ~after_indent & (newline << 1 | carry.newline);
  starts |= line_starts(after_newline, last, indent, newline, base, carry);
  carry.letter = now.letter >> 63;
  carry.number = now.number >> 63;
  carry.sign = sign >> 63;
  carry.white = white >> 63;
  carry.blank = now.blank >> 63;
  carry.indent = indent >> 63;
  carry.newline = newline >> 63;
  carry.taken = taken >> 63;
  carry.lone_sign = lone >> 63;
  return starts;
}

/// All starts of a block. A start of an earlier block that is known only now goes to `out`.
template <Rules R>
[[gnu::always_inline]] inline uint64_t block_starts(std::string_view text, size_t base,
                                                    const BlockMasks& now, const BlockMasks& next,
                                                    BlockCarry& carry, uint32_t*& out) noexcept {
  uint64_t starts;
  if constexpr (R.lines) {
    starts = line_family_starts<R>(now, next, base, carry, out);
  } else {
    starts = gpt2_starts<R>(now, next, carry);
  }
  starts = (starts & ~carry.no_cut) | carry.cut;
  carry.cut = carry.no_cut = 0;
  uint64_t quotes = now.quote & starts;
  // In cl100k's form an apostrophe after a blank is no start, and neither is one in a run.
  if (quotes != 0) [[unlikely]]
    starts = cut_contractions<R>(text, base, quotes, starts, carry);
  if (base == 0) starts &= ~uint64_t{1};
  return (starts | now.cut) & low_bits(text.size() - base);
}

/// The end of the segment: what was pending, and the end itself.
template <Rules R>
[[gnu::always_inline]] inline uint32_t* end_segment(size_t size, const BlockCarry& carry,
                                                    uint32_t* out) noexcept {
  if (!R.whole_tail && carry.pending != 0 && carry.pending != size)
    *out++ = static_cast<uint32_t>(carry.pending);
  *out++ = static_cast<uint32_t>(size);
  return out;
}

#endif  // __x86_64__

}  // namespace

#if defined(__x86_64__)

/// The walks: static members because they are BoundaryScan' friends.
struct BlockWalk {
  // --- AVX2
  // ---------------------------------------------------------------------------------------

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
  classify_avx2(std::string_view text, const uint64_t* joinable, size_t base,
                BlockMasks& spill) noexcept {
    alignas(32) uint8_t tail[64] = {};
    const char* from = text.data() + base;
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
    uint64_t high = mask_of(a, b);
    if ((high | spill.inside) != 0) classify_high<R>(text, joinable, base, high, m, spill);
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
    std::string_view text = self.segment();
    BlockCarry carry = self.carry_;
    BlockMasks now = self.masks_;
    size_t base = self.base_;
    if (base == 0) now = classify_avx2<R>(text, self.joinable_, 0, carry.spill);
    uint32_t* out = ends;
    const uint32_t* full = ends + (capacity - kRoom);
    for (bool last = false; !last && out <= full; base += 64) {
      last = base + 64 >= text.size();
      BlockMasks next = kEndMasks;
      if (!last) next = classify_avx2<R>(text, self.joinable_, base + 64, carry.spill);
      uint64_t starts = block_starts<R>(text, base, now, next, carry, out);
      out = harvest_avx2(starts, base, out);
      if (last) out = end_segment<R>(text.size(), carry, out);
      now = next;
      self.done_ = last;
    }
    self.carry_ = carry;
    self.masks_ = now;
    self.base_ = base;
    return static_cast<size_t>(out - ends);
  }

  // --- AVX-512
  // ------------------------------------------------------------------------------------

  template <Rules R>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt"),
    gnu::always_inline]] static inline BlockMasks
  classify_avx512(std::string_view text, const uint64_t* joinable, size_t base,
                  BlockMasks& spill) noexcept {
    const char* from = text.data() + base;
    size_t left = text.size() - base;
    // A masked load does not touch what it masks out, so the end of the text may end a page.
    __m512i v =
        left < 64 ? _mm512_maskz_loadu_epi8(low_bits(left), from) : _mm512_loadu_si512(from);
    const __m512i case_bit = _mm512_set1_epi8(0x20);
    BlockMasks m{};
    m.letter = _mm512_cmple_epu8_mask(
        _mm512_sub_epi8(_mm512_or_si512(v, case_bit), _mm512_set1_epi8('a')), _mm512_set1_epi8(25));
    m.number =
        _mm512_cmple_epu8_mask(_mm512_sub_epi8(v, _mm512_set1_epi8('0')), _mm512_set1_epi8(9));
    m.blank = _mm512_cmpeq_epi8_mask(v, case_bit);
    m.white = m.blank |
              _mm512_cmple_epu8_mask(_mm512_sub_epi8(v, _mm512_set1_epi8(9)), _mm512_set1_epi8(4));
    m.quote = _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8('\''));
    if constexpr (R.lines) {
      m.newline = _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8('\n')) |
                  _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8('\r'));
    }
    uint64_t high = _mm512_movepi8_mask(v);
    if ((high | spill.inside) != 0) classify_high<R>(text, joinable, base, high, m, spill);
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

  /// The same with byte compression: one for all sixty-four bits.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi,bmi2,lzcnt,popcnt"),
    gnu::always_inline]] static inline uint32_t*
  harvest_avx512vbmi2(uint64_t starts, size_t base, uint32_t* out) noexcept {
    __m512i at = _mm512_maskz_compress_epi8(starts, _mm512_loadu_si512(kByteIndex.data()));
    const __m512i from = _mm512_set1_epi32(static_cast<int>(base));
    int count = std::popcount(starts);
    __m512i wide = _mm512_maskz_cvtepu8_epi32(0xFFFF, _mm512_maskz_extracti32x4_epi32(0xF, at, 0));
    _mm512_storeu_si512(out, _mm512_add_epi32(from, wide));
    if (count > 16) [[unlikely]] {
      wide = _mm512_maskz_cvtepu8_epi32(0xFFFF, _mm512_maskz_extracti32x4_epi32(0xF, at, 1));
      _mm512_storeu_si512(out + 16, _mm512_add_epi32(from, wide));
      wide = _mm512_maskz_cvtepu8_epi32(0xFFFF, _mm512_maskz_extracti32x4_epi32(0xF, at, 2));
      _mm512_storeu_si512(out + 32, _mm512_add_epi32(from, wide));
      wide = _mm512_maskz_cvtepu8_epi32(0xFFFF, _mm512_maskz_extracti32x4_epi32(0xF, at, 3));
      _mm512_storeu_si512(out + 48, _mm512_add_epi32(from, wide));
    }
    return out + count;
  }

  template <Rules R>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt")]] static size_t
  avx512bw(BoundaryScan& self, uint32_t* ends, size_t capacity) noexcept {
    std::string_view text = self.segment();
    BlockCarry carry = self.carry_;
    BlockMasks now = self.masks_;
    size_t base = self.base_;
    if (base == 0) now = classify_avx512<R>(text, self.joinable_, 0, carry.spill);
    uint32_t* out = ends;
    const uint32_t* full = ends + (capacity - kRoom);
    for (bool last = false; !last && out <= full; base += 64) {
      last = base + 64 >= text.size();
      BlockMasks next = kEndMasks;
      if (!last) next = classify_avx512<R>(text, self.joinable_, base + 64, carry.spill);
      uint64_t starts = block_starts<R>(text, base, now, next, carry, out);
      out = harvest_avx512bw(starts, base, out);
      if (last) out = end_segment<R>(text.size(), carry, out);
      now = next;
      self.done_ = last;
    }
    self.carry_ = carry;
    self.masks_ = now;
    self.base_ = base;
    return static_cast<size_t>(out - ends);
  }

  template <Rules R>
  [[gnu::target(
      "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi,bmi2,lzcnt,"
      "popcnt")]] static size_t
  avx512vbmi2(BoundaryScan& self, uint32_t* ends, size_t capacity) noexcept {
    std::string_view text = self.segment();
    BlockCarry carry = self.carry_;
    BlockMasks now = self.masks_;
    size_t base = self.base_;
    if (base == 0) now = classify_avx512<R>(text, self.joinable_, 0, carry.spill);
    uint32_t* out = ends;
    const uint32_t* full = ends + (capacity - kRoom);
    for (bool last = false; !last && out <= full; base += 64) {
      last = base + 64 >= text.size();
      BlockMasks next = kEndMasks;
      if (!last) next = classify_avx512<R>(text, self.joinable_, base + 64, carry.spill);
      uint64_t starts = block_starts<R>(text, base, now, next, carry, out);
      out = harvest_avx512vbmi2(starts, base, out);
      if (last) out = end_segment<R>(text.size(), carry, out);
      now = next;
      self.done_ = last;
    }
    self.carry_ = carry;
    self.masks_ = now;
    self.base_ = base;
    return static_cast<size_t>(out - ends);
  }

  template <Rules R>
  static BoundaryScan::Walk of_level(SimdLevel level) noexcept {
    if (level == SimdLevel::avx512vbmi2) return avx512vbmi2<R>;
    if (level == SimdLevel::avx512bw) return avx512bw<R>;
    return avx2<R>;
  }

  /// The walk for a pre-tokenizer; null when it has no masks.
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
                           SimdLevel level, const uint64_t* joinable) noexcept
    : walk_(BlockWalk::find(pretokenizer, level)),
      done_(segment.empty()),
      joinable_(joinable),
      cutter_(pretokenizer, segment) {
  if (walk_ == nullptr) walk_ = walk_plain;
}

}  // namespace tok
