// Level choice and the plain walk of boundaries.h; the masks are in boundaries_x86.cc.
// Includes: boundaries.h, and the environment for the two variables that tests use.
// Source of the level flags: Intel's and AMD's CPUID leaf 7, through the compiler's own check.
// SPDX-License-Identifier: MIT
#include "libtok/boundaries.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace tok {
namespace {

constexpr SimdLevel kLevels[] = {SimdLevel::plain, SimdLevel::avx2, SimdLevel::avx512bw,
                                 SimdLevel::avx512vbmi2};

SimdLevel forced_level(SimdLevel best) noexcept {
  const char* scalar = std::getenv("TOK_FORCE_SCALAR");
  if (scalar != nullptr && std::string_view(scalar) == "1") return SimdLevel::plain;
  const char* name = std::getenv("TOK_FORCE_LEVEL");
  if (name == nullptr) return best;
  for (SimdLevel level : kLevels) {
    if (simd_level_name(level) == name) return std::min(level, best);
  }
  return best;
}

/// The low 16 bits of the code point of a character of three bytes.
size_t wide_number(const uint8_t* at) noexcept {
  return static_cast<size_t>((at[0] & 15) << 12 | (at[1] & 63) << 6 | (at[2] & 63));
}

}  // namespace

bool JoinablePairs::joins_wide(const uint8_t* second) const noexcept {
  const uint8_t* first = second - 3;
  const bool wide =
      (first[0] & 0xF0) == 0xE0 && (first[1] & 0xC0) == 0x80 && (first[2] & 0xC0) == 0x80;
  if (!wide || wide_left.empty()) return true;
  if ((wide_left[wide_number(first)] & wide_right[wide_number(second)]) == 0) return false;
  // Contexts of two whole characters are by far the most.
  for (size_t i = 3; i > 0; --i) {
    uint32_t left = 0;
    for (size_t k = 0; k < i; ++k) {
      left |= static_cast<uint32_t>(second[-1 - static_cast<ptrdiff_t>(k)]) << (8 * k);
    }
    uint32_t right = static_cast<uint32_t>(second[0] | second[1] << 8 | second[2] << 16);
    for (size_t j = 3; j > 0; right &= 0xFFFFu >> 8 * (3 - j), --j) {
      if (wide_contexts.has({left, i}, {right, j})) return true;
    }
  }
  return false;
}

uint64_t JoinablePairs::wide_cuts(const char* from, uint64_t asked) const noexcept {
  uint64_t cuts = 0;
  for (; asked != 0; asked &= asked - 1) {
    const auto* second = reinterpret_cast<const uint8_t*>(from) + std::countr_zero(asked);
    if (!joins_wide(second)) cuts |= asked & (0 - asked);
  }
  return cuts;
}

std::string_view simd_level_name(SimdLevel level) noexcept {
  constexpr std::string_view kNames[] = {"plain", "avx2", "avx512bw", "avx512vbmi2"};
  return kNames[static_cast<size_t>(level)];
}

SimdLevel best_simd_level() noexcept {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi") ||
      !__builtin_cpu_supports("bmi2")) {
    return SimdLevel::plain;
  }
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
    return SimdLevel::avx2;
  }
  if (!__builtin_cpu_supports("avx512vbmi") || !__builtin_cpu_supports("avx512vbmi2")) {
    return SimdLevel::avx512bw;
  }
  return SimdLevel::avx512vbmi2;
#else
  return SimdLevel::plain;
#endif
}

SimdLevel chosen_simd_level() noexcept {
  static const SimdLevel level = forced_level(best_simd_level());
  return level;
}

size_t BoundaryScan::next(uint32_t* ends, size_t capacity) noexcept {
  if (row_ != nullptr) row_->num_marks = 0;
  return done_ ? 0 : walk_(*this, ends, capacity);
}

size_t BoundaryScan::walk_plain(BoundaryScan& self, uint32_t* ends, size_t capacity) noexcept {
  uint32_t* out = ends;
  const uint32_t* full = ends + (capacity - 4);
  bool more = true;
  while (more && out < full) {
    if (!self.cutter_.next().empty()) {
      *out++ = static_cast<uint32_t>(self.origin_ + self.cutter_.position());
      if (self.cutter_.position() < self.text_.size()) continue;
    }
    more = self.next_text(ends, out);
    if (more) self.cutter_.begin(self.text_);
  }
  self.done_ = !more;
  return static_cast<size_t>(out - ends);
}

/// Cuts text_ with the scanners, from a place where a piece begins until one begins at or behind
/// `limit`, and returns where. What lies before a piece's beginning never matters.
size_t BoundaryScan::cut_plainly(size_t from, size_t limit, uint32_t*& out) noexcept {
  cutter_.begin(text_.substr(from));
  size_t at = from;
  while (at < limit && !cutter_.next().empty()) {
    at = from + cutter_.position();
    *out++ = static_cast<uint32_t>(origin_ + at);
  }
  return at;
}

}  // namespace tok
