// SPDX-License-Identifier: MIT
// Room: tools/stream. The strings of a JSON line: where one ends, and its characters, escapes
// resolved. Sixteen bytes at a time between escapes. As Python reads them: escapes of lone
// surrogates pass, for who asks for the text to refuse.
// Not here: what stands around strings (json_scan.h). Positions are byte offsets in the line.
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

/// What is asked of a string: its characters, or these as JSON that escapes what JSON demands and
/// nothing else, which is what extract::append_json_string writes.
enum class Spelling { characters, escaped };

/// A string that was read.
struct JsonString {
  size_t end = 0;         ///< behind its closing quote; with a fault: where that is
  std::string_view text;  ///< as asked: in the line where nothing is escaped, else in the room
  size_t surrogate = std::string_view::npos;  ///< where its first lone surrogate is escaped
  StringFault fault = StringFault::none;
};

/// Bytes that texts take in their room beside their own: copying goes by whole vectors.
inline constexpr size_t kRoomSlack = 16;

/// Where from `at` on the first byte is that does not stand for itself in a string, a quote among
/// them; the line's end where there is none.
size_t end_of_plain(std::string_view line, size_t at);

/// Reads the string whose opening quote is at `begin`, of which what lies before `plain` stands as
/// it is; room and result as read_string.
JsonString read_escaped(std::string_view line, size_t begin, size_t plain, Spelling spelling,
                        char*& room);

/// Reads the string whose opening quote is at `begin`. `room` has line.size() - begin + kRoomSlack
/// bytes and moves on behind what was written; a text is no longer than it stands in the line.
inline JsonString read_string(std::string_view line, size_t begin, Spelling spelling, char*& room) {
  const size_t plain = end_of_plain(line, begin + 1);
  if (plain < line.size() && line[plain] == '"')
    return {.end = plain + 1, .text = line.substr(begin + 1, plain - begin - 1)};
  return read_escaped(line, begin, plain, spelling, room);
}

/// The same without the text.
JsonString skip_string(std::string_view line, size_t begin);

}  // namespace stream
