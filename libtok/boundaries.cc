// The choice of the level, and the plain scan of boundaries.h; the masks are in boundaries_x86.cc.
// Includes: boundaries.h. Reads two environment variables for tests.
// Source of the level flags: Intel's and AMD's CPUID leaf 7, through the compiler's own check.
// SPDX-License-Identifier: MIT
#include "libtok/boundaries.h"

#include <algorithm>
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

}  // namespace

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

/// Cuts wherever no merge can join: all there is to cut by where a pre-tokenizer has no stage.
/// `kAtBlanks`: and before each blank. Sixteen bytes at a time, without a branch that the text
/// decides, but for characters of three bytes.
template <bool kAtBlanks>
size_t BoundaryScan::walk_cuts(BoundaryScan& self, uint32_t* ends, size_t capacity) noexcept {
  constexpr size_t kStep = 16;
  const JoinablePairs& joinable = *self.joinable_;
  uint32_t* out = ends;
  const uint32_t* full = ends + (capacity - kStep - 4);
  bool more = true;
  while (more && out < full) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(self.text_.data());
    const size_t size = self.text_.size();
    size_t at = self.base_ + 1;
    while (at < size && out < full) {
      for (const size_t end = std::min(size, at + kStep); at < end; ++at) {
        const uint8_t before = bytes[at - 1], here = bytes[at];
        bool cut = !joinable.joins(before, here) & ((here & 0xC0) != 0x80);
        if constexpr (kAtBlanks) cut |= here == ' ';
        if ((here & 0xF0) == 0xE0 && !cut && at >= 3 && at + 3 <= size) {
          cut = !joinable.joins_wide(bytes + at);
        }
        *out = static_cast<uint32_t>(self.origin_ + at);
        out += cut;
      }
    }
    self.base_ = at - 1;
    if (at < size) break;
    *out++ = static_cast<uint32_t>(self.origin_ + size);
    self.base_ = 0;
    more = self.next_text(ends, out);
  }
  self.done_ = !more;
  return static_cast<size_t>(out - ends);
}

template size_t BoundaryScan::walk_cuts<false>(BoundaryScan&, uint32_t*, size_t) noexcept;
template size_t BoundaryScan::walk_cuts<true>(BoundaryScan&, uint32_t*, size_t) noexcept;

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
