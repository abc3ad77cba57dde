// SPDX-License-Identifier: MIT
// Room: tools/cli. Helpers for messages, in place of std::format, which GCC 12's library lacks.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace cli {

/// Concatenates its arguments as operator<< writes them.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// The items with `separator` between them.
std::string join(const std::vector<std::string>& items, std::string_view separator);

/// 90114 as "90,114".
std::string with_commas(int64_t count);

/// "1 document", "90,114 documents": a count with its noun; the plural adds an s.
std::string counted(int64_t count, std::string_view noun);

/// `text` in double quotes, at most `limit` bytes of it (cut at a character, then "..."); control
/// characters, quotes, backslashes and bytes that are not UTF-8 are written as escapes, so the
/// result is one line that a terminal can show.
std::string quote(std::string_view text, size_t limit = 60);

/// `text` as one line that is safe on a terminal: control characters, line separators, marks that
/// change the direction of text, and bytes that are not UTF-8 become escapes ("\\n", "\\x1b",
/// "\\u202e"); everything else is unchanged. For every name that others chose: of a file, a tensor,
/// a key. Console applies it to all messages; code that prints such names to stdout calls it
/// itself.
std::string one_line(std::string_view text);

/// `word` so that a shell reads it as one word: unchanged, or in single quotes.
std::string shell_word(std::string_view word);

/// Bytes for reading: "1.5 GiB", "640 B".
std::string readable_bytes(double bytes);

/// Seconds for reading: "3 s", "4 min 10 s", "2 h 5 min".
std::string readable_time(double seconds);

}  // namespace cli
