// SPDX-License-Identifier: MIT
// Room: tools/stream. The law of one JSON line: what Python's json.loads takes, byte by byte, with
// the place and the reason of what it does not take. One pass, which also reads the texts that are
// asked for.
// Beyond RFC 8259, as in Python: NaN, Infinity and -Infinity are numbers, numbers have any size,
// escapes of lone surrogates pass in values that nobody asks for, and of equal keys the last one
// counts.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/stream/json_string.h"

namespace stream {

/// Why a record is refused.
enum class Reason {
  json,
  missing_key,
  wrong_type,
  utf8,
  surrogate,
  too_long,
  byte_order_mark,
  nul_in_text,
  unencodable
};
inline constexpr size_t kNumReasons = 9;

/// "malformed JSON", ...; for the closing line.
std::string_view name_of(Reason reason);

/// One refusal. `offset` in bytes from the front of the record.
struct Complaint {
  Reason reason = Reason::json;
  size_t offset = 0;
  std::string what;
};

/// Type of a JSON value, for messages.
enum class JsonType { string, list, object, number, boolean, null };

/// "a number", ...; for messages.
std::string_view name_of(JsonType type);

/// A value of a wanted key: where it stands in the line.
struct JsonSpan {
  JsonType type = JsonType::null;
  size_t begin = 0;
  size_t end = 0;         ///< 0: the key is absent
  std::string_view text;  ///< of a string: as asked, in the line where nothing is escaped
  size_t surrogate = std::string_view::npos;  ///< where its first lone surrogate is escaped
};

/// Deepest nesting of objects and lists that is read.
inline constexpr size_t kMaxDepth = 1024;

/// The front of a line up to its first value, where that is a string of the first wanted key.
struct JsonHead {
  size_t begin = 0;  ///< of the string
  JsonString string = {};

  /// Behind the string; 0 where the line opens in another way.
  size_t end() const { return string.fault == StringFault::none ? string.end : 0; }
};

/// Checks the whole of `line`, which must be valid UTF-8, and finds the values of `keys` in the
/// object that it is, strings in `spelling`; goes on behind `head`, if that was read. `spans` has
/// one entry a key. `room` has line.size() + kRoomSlack bytes (json_string.h) and moves on behind
/// the texts that it was needed for. False with `complaint` set when the line is not one JSON
/// object.
bool scan_json(std::string_view line, const JsonHead& head, std::span<const std::string> keys,
               Spelling spelling, std::span<JsonSpan> spans, char*& room, Complaint& complaint);

/// The names of the members of `line`, a JSON object that scan_json() took, as they are spelled in
/// it.
std::vector<std::string_view> member_names(std::string_view line);

/// Whether `text` is UTF-8.
bool is_utf8(std::string_view text);

/// Offset of the first byte of `text` that is not UTF-8; npos where all are.
size_t find_bad_utf8(std::string_view text);

}  // namespace stream
