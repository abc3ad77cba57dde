// SPDX-License-Identifier: MIT
// Room: tools/stream. The strings of a JSON line: where one ends, and its characters, escapes
// resolved. Sixteen bytes at a time between escapes. As in Python, escapes of lone surrogates are
// accepted; a caller that needs the text refuses them. Not here: what is around strings
// (json_scan.h). Positions are byte offsets in the line.
#pragma once

#include <cstddef>
#include <string_view>

namespace stream {

/// What is wrong with a string.
enum class StringFault {
  none,
  control,         ///< a control character that is not escaped
  unknown_escape,  ///< a backslash before something that it does not escape
  bad_digits,      ///< \u without four hexadecimal digits
  no_end           ///< the line ends in it
};

/// The requested form of a string: its characters, or JSON that escapes only what JSON requires, as
/// extract::append_json_string writes it.
enum class Spelling { characters, escaped };

/// A string that was read.
struct JsonString {
  size_t end = 0;         ///< after its closing quote; with a fault: the fault's place
  std::string_view text;  ///< in the requested spelling: a view of the line if nothing is escaped,
                          ///< else of the room
  size_t surrogate = std::string_view::npos;  ///< where its first lone surrogate is escaped
  StringFault fault = StringFault::none;
};

/// Additional bytes that the room needs, since copying uses whole vectors.
inline constexpr size_t kRoomSlack = 16;

/// The place of the first byte from `at` on that is special in a string (a quote, a backslash, a
/// control character); the line's end if there is none.
size_t end_of_plain(std::string_view line, size_t at);

/// Reads the string whose opening quote is at `begin` and whose bytes before `plain` are not
/// escaped; room and result as in read_string.
JsonString read_escaped(std::string_view line, size_t begin, size_t plain, Spelling spelling,
                        char*& room);

/// Reads the string whose opening quote is at `begin`. `room` has line.size() - begin + kRoomSlack
/// bytes and is advanced past what was written; a text is never longer than its form in the line.
inline JsonString read_string(std::string_view line, size_t begin, Spelling spelling, char*& room) {
  const size_t plain = end_of_plain(line, begin + 1);
  if (plain < line.size() && line[plain] == '"')
    return {.end = plain + 1, .text = line.substr(begin + 1, plain - begin - 1)};
  return read_escaped(line, begin, plain, spelling, room);
}

/// The same without the text.
JsonString skip_string(std::string_view line, size_t begin);

}  // namespace stream
