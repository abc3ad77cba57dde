// SPDX-License-Identifier: MIT
// Room: tools/stream. Parses one JSON line exactly as Python's json.loads does, and gives the place
// and the reason of an error. One pass, which also reads the requested texts. Beyond RFC 8259, as
// in Python: NaN, Infinity and -Infinity are numbers, numbers have any size, escapes of lone
// surrogates are accepted in values that are not requested, and of equal keys the last one counts.
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

/// A value of a wanted key: its place in the line.
struct JsonSpan {
  JsonType type = JsonType::null;
  size_t begin = 0;
  size_t end = 0;         ///< 0: the key is absent
  std::string_view text;  ///< of a string, in the requested spelling; a view of the line if nothing
                          ///< is escaped
  size_t surrogate = std::string_view::npos;  ///< where its first lone surrogate is escaped
};

/// Deepest nesting of objects and lists that is read.
inline constexpr size_t kMaxDepth = 1024;

/// The beginning of a line up to its first value, if that is a string of the first wanted key.
struct JsonHead {
  size_t begin = 0;  ///< of the string
  JsonString string = {};

  /// After the string; 0 if the line begins in another way.
  size_t end() const { return string.fault == StringFault::none ? string.end : 0; }
};

/// Checks all of `line`, which must be valid UTF-8, and finds the values of `keys` in its object,
/// strings in `spelling`; continues after `head` if that was read. `spans` has one entry for each
/// key. `room` has line.size() + kRoomSlack bytes (json_string.h) and is advanced past the texts
/// written to it. False with `complaint` set if the line is not one JSON object.
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
