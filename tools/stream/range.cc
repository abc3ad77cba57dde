// SPDX-License-Identifier: MIT
// Room: tools/stream. The words of --range.
#include "tools/stream/range.h"

#include "tools/cli/fields.h"
#include "tools/cli/text.h"

namespace stream {

Range parse_range(std::string_view text) {
  constexpr int64_t kMostParts = int64_t{1} << 30;
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) {
    throw cli::UsageError("expected K/N: part K, from 1, of N");
  }
  Range range;
  range.parts = cli::parse_integer(text.substr(slash + 1), 1, kMostParts);
  range.part = cli::parse_integer(text.substr(0, slash), 1, range.parts);
  return range;
}

std::string show_range(Range range) { return cli::concat(range.part, "/", range.parts); }

}  // namespace stream
