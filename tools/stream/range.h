// SPDX-License-Identifier: MIT
// Room: tools/stream. A part of the inputs, as --range K/N names it: the concatenated bytes of all
// inputs, in N parts of equal size. A record belongs to the part in which its first byte lies, so
// all N parts together give every record once and in order, whatever N is. Not here: finding where
// a record begins (chunks.h for lines, tools/wiki/dump.h for pages).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tools/cli/flags.h"

namespace stream {

/// Part `part` of `parts`, counted from 1.
struct Range {
  int64_t part = 1;
  int64_t parts = 1;

  bool whole() const { return parts == 1; }
  /// First byte of the part, and the first byte after it, of `total` bytes.
  int64_t begin(int64_t total) const { return cut(total, part - 1); }
  int64_t end(int64_t total) const { return cut(total, part); }

 private:
  /// total * k / parts, rounded down, without overflow.
  int64_t cut(int64_t total, int64_t k) const {
    return total / parts * k + total % parts * k / parts;
  }
};

/// Reads "K/N". Errors: UsageError unless 1 <= K <= N <= 2^30.
Range parse_range(std::string_view text);
std::string show_range(Range range);

/// The field of a row --range.
template <class O>
cli::Field<O> range_field(Range O::*member) {
  return {cli::Arity::one, [=](O& o, const cli::Values& v) { o.*member = parse_range(v[0]); },
          [=](const O& o) {
            return (o.*member).whole() ? cli::Values{} : cli::Values{show_range(o.*member)};
          }};
}

}  // namespace stream
