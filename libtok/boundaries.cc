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

/// Cuts text_ with the scanners, from a place where a piece begins until one begins at or after
/// `limit`, and returns where. Text before a piece's beginning never matters.
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
