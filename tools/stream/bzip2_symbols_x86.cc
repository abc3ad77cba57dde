// SPDX-License-Identifier: MIT
// Symbols of a bzip2 block with AVX2. The first sixteen bytes of the order stay in a register, in
// which a move to front is one shuffle, and a run is a move of the first byte that is written
// several times. So run symbols and others take the same path, without a branch. Every symbol
// writes 32 bytes, of which the run's are valid; the next one overwrites the rest. Must equal
// read_symbols_plainly() of bzip2_symbols.cc.
#include <cstdlib>
#include <string_view>

#include "tools/stream/bzip2_symbols.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace stream {

#if defined(__x86_64__)
namespace {

constexpr size_t kFront = 16;
constexpr size_t kWrite = 32;
static_assert(Bzip2Header::kGroup * kWrite + kWrite <= Bzip2Bytes::kSlack);

// For each run symbol, and for each that moves one of the first sixteen to the front: the source of
// each of the sixteen.
struct Moves {
  alignas(16) std::array<std::array<uint8_t, kFront>, kFront + 1> from{};
};
constexpr Moves make_moves() {
  Moves moves;
  for (size_t symbol = 0; symbol <= kFront; ++symbol) {
    const size_t moved = symbol < 2 ? 0 : symbol - 1;
    for (size_t i = 0; i < kFront; ++i) {
      moves.from[symbol][i] = static_cast<uint8_t>(i == 0 ? moved : i <= moved ? i - 1 : i);
    }
  }
  return moves;
}
constexpr Moves kMoves = make_moves();

// Moves order[index] to the front, index >= kFront; order[0] to [15] are `front`.
[[gnu::target("avx2,bmi,bmi2")]] inline __m128i move_far(uint8_t* order, __m128i front,
                                                         size_t index) {
  alignas(16) static constexpr std::array<uint8_t, kFront> kPlaces = {0, 1, 2,  3,  4,  5,  6,  7,
                                                                      8, 9, 10, 11, 12, 13, 14, 15};
  const auto at = [&](size_t i) { return reinterpret_cast<__m128i*>(order + i); };
  _mm_store_si128(at(0), front);
  const uint8_t moved = order[index];
  size_t block = index & ~(kFront - 1);
  const __m128i places = _mm_load_si128(reinterpret_cast<const __m128i*>(kPlaces.data()));
  const __m128i stay = _mm_cmpgt_epi8(places, _mm_set1_epi8(static_cast<char>(index - block)));
  _mm_store_si128(at(block),
                  _mm_blendv_epi8(_mm_loadu_si128(at(block - 1)), _mm_load_si128(at(block)), stay));
  for (block -= kFront; block > 0; block -= kFront) {
    _mm_store_si128(at(block), _mm_loadu_si128(at(block - 1)));
  }
  return _mm_insert_epi8(_mm_slli_si128(front, 1), moved, 0);
}

[[gnu::target("avx2,bmi,bmi2")]] bool read_symbols_avx2(Bzip2Bits& source, const char* end,
                                                        const Bzip2Header& header,
                                                        Bzip2Bytes& bytes) {
  alignas(16) std::array<uint8_t, 256> order = header.used;
  Bzip2Bits bits = source;
  __m128i front = _mm_load_si128(reinterpret_cast<const __m128i*>(order.data()));
  std::array<uint32_t, 256> counts{};
  uint8_t* out = bytes.bytes;
  uint8_t* const full = out + bytes.most;
  const uint32_t last = static_cast<uint32_t>(header.num_symbols) - 1;
  const uint32_t odd = std::min<uint32_t>(last, kFront + 1);  // this symbol, and those after it
  uint32_t digit = 0;                                         // the next one of a run's length
  for (const uint8_t selector : header.selectors) {
    const Bzip2Code& code = header.codes[selector];
    if (bits.beyond(end) || out > full) return false;
    for (size_t i = 0; i < Bzip2Header::kGroup; ++i) {
      if (i % 2 == 0) bits.refill();
      const uint32_t symbol = code.read(bits);
      const uint32_t run = symbol < 2 ? 1 : 0;
      digit &= 0 - run;
      const uint32_t count = (1 + (symbol & run)) << digit;
      digit += run;
      if (symbol >= odd || count > kWrite) [[unlikely]] {
        if (run != 0) {
          if (static_cast<std::ptrdiff_t>(count) > full - out) return false;
          const auto byte = static_cast<uint8_t>(_mm_cvtsi128_si32(front));
          std::memset(out, byte, count);
          counts[byte] += count;
          out += count;
          continue;
        }
        if (symbol == last) {
          bytes.size = static_cast<size_t>(out - bytes.bytes);
          bytes.counts = counts;
          source = bits;
          return bytes.size > 0 && out <= full;
        }
        if (symbol > last) return false;
        front = move_far(order.data(), front, symbol - 1);
      } else {
        front = _mm_shuffle_epi8(
            front, _mm_load_si128(reinterpret_cast<const __m128i*>(kMoves.from[symbol].data())));
      }
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_broadcastb_epi8(front));
      counts[static_cast<uint8_t>(_mm_cvtsi128_si32(front))] += count;
      out += count;
    }
  }
  return false;
}

}  // namespace
#endif

Bzip2SymbolReader best_symbol_reader() {
#if defined(__x86_64__)
  const char* scalar = std::getenv("TOK_FORCE_SCALAR");
  const bool plain = scalar != nullptr && std::string_view(scalar) == "1";
  if (!plain && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
      __builtin_cpu_supports("bmi2"))
    return read_symbols_avx2;
#endif
  return read_symbols_plainly;
}

}  // namespace stream
