// SPDX-License-Identifier: MIT
// Room: tools/stream. The scanner: one pass, no recursion, a fixed stack for the nesting.
#include "tools/stream/json_scan.h"

#include <array>

#include <simdjson.h>

#include "tools/cli/text.h"

namespace stream {
namespace {

constexpr size_t kNone = std::string_view::npos;

/// A pass over one line. Functions return false once complaint_ is set.
class Scan {
 public:
  Scan(std::string_view line, std::span<const std::string> keys, Spelling spelling,
       std::span<JsonSpan> spans, char*& room, Complaint& complaint)
      : line_(line),
        keys_(keys),
        spelling_(spelling),
        spans_(spans),
        room_(room),
        complaint_(complaint) {}

  bool run(const JsonHead& head) {
    for (JsonSpan& span : spans_) span = {};
    skip_space();
    if (peek() == '[')
      return expected("a JSON object (a file that is one JSON array: --input-format array)");
    if (peek() != '{')
      return expected(at_ == line_.size() ? "a JSON object, the record is empty" : "a JSON object");
    if (!value(head)) return false;
    skip_space();
    return at_ == line_.size() || expected("the end of the line after the object");
  }

 private:
  char peek() const { return at_ < line_.size() ? line_[at_] : '\0'; }

  bool fail(std::string what) {
    complaint_ = {Reason::json, at_, std::move(what)};
    return false;
  }

  bool expected(std::string_view what) {
    if (at_ >= line_.size())
      return fail(cli::concat("malformed JSON: the line ends, expected ", what));
    std::string_view found = line_.substr(at_, 1);
    const unsigned char lead = static_cast<unsigned char>(found[0]);
    if (lead >= 0xC0) found = line_.substr(at_, lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4);
    return fail(cli::concat("malformed JSON: found ", cli::quote(found), ", expected ", what));
  }

  void skip_space() {
    while (at_ < line_.size() &&
           (line_[at_] == ' ' || line_[at_] == '\t' || line_[at_] == '\r' || line_[at_] == '\n')) {
      ++at_;
    }
  }

  /// Moves past a string that was read, or sets the complaint.
  bool take(const JsonString& string) {
    at_ = string.end;
    switch (string.fault) {
      case StringFault::none:
        return true;
      case StringFault::control:
        return fail(cli::concat("malformed JSON: control character ",
                                cli::quote(line_.substr(at_, 1)),
                                " inside a string, expected an escape"));
      case StringFault::unknown_escape:
        return fail(
            cli::concat("malformed JSON: unknown escape ", cli::quote(line_.substr(at_, 2))));
      case StringFault::bad_digits:
        return fail("malformed JSON: expected four hexadecimal digits after \\u");
      case StringFault::no_end:
        return fail("malformed JSON: the string that opens here does not end");
    }
    return false;
  }

  /// Reads the string at at_, which is a value; its text goes to `span` if requested.
  bool string_value(JsonSpan* span) {
    if (span == nullptr) return take(skip_string(line_, at_));
    const JsonString string = read_string(line_, at_, spelling_, room_);
    span->text = string.text;
    span->surrogate = string.surrogate;
    return take(string);
  }

  bool word(std::string_view text) {
    if (line_.substr(at_, text.size()) != text) return expected("a value");
    at_ += text.size();
    return true;
  }

  bool digits() {
    const size_t begin = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ > begin;
  }

  bool number() {
    if (peek() == '-') ++at_;
    if (peek() == 'I') return word("Infinity");
    if (peek() == '0')
      ++at_;
    else if (!digits())
      return expected("a digit");
    if (peek() == '.') {
      ++at_;
      if (!digits()) return expected("a digit");
    }
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      if (!digits()) return expected("a digit");
    }
    return true;
  }

  /// A value that contains no others; `span`, if not null, gets a string's text.
  bool scalar(JsonType& type, JsonSpan* span) {
    const char c = peek();
    if (at_ >= line_.size()) return expected("a value");
    if (c == '"') return type = JsonType::string, string_value(span);
    if (c == '-' || (c >= '0' && c <= '9') || c == 'I') return type = JsonType::number, number();
    if (c == 'N') return type = JsonType::number, word("NaN");
    if (c == 't') return type = JsonType::boolean, word("true");
    if (c == 'f') return type = JsonType::boolean, word("false");
    if (c == 'n') return type = JsonType::null, word("null");
    return expected("a value");
  }

  /// The key at at_ and its colon; `wanted` is which of keys_ it is, when it belongs to the
  /// outermost object.
  bool key(size_t& wanted) {
    wanted = kNone;
    if (peek() != '"' || at_ >= line_.size()) return expected("a key in double quotes");
    if (depth_ > 1) {
      if (!take(skip_string(line_, at_))) return false;
    } else {
      char* const room = room_;
      const JsonString name = read_string(line_, at_, Spelling::characters, room_);
      room_ = room;  // the name is not kept
      if (!take(name)) return false;
      if (name.surrogate == kNone) wanted = find_key(name.text);
    }
    skip_space();
    if (peek() != ':') return expected("\":\" after the key");
    ++at_;
    return true;
  }

  size_t find_key(std::string_view name) const {
    for (size_t i = 0; i < keys_.size(); ++i) {
      if (keys_[i] == name) return i;
    }
    return kNone;
  }

  bool open(bool object) {
    if (depth_ == kMaxDepth) {
      return fail(cli::concat("malformed JSON: nested deeper than ", kMaxDepth, " levels"));
    }
    is_object_[depth_++] = object;
    ++at_;
    return true;
  }

  /// The outermost object with everything in it, except `head`.
  bool value(const JsonHead& head) {
    size_t wanted = kNone;  // of the member of the outermost object that is being read
    JsonSpan span;
    bool opened = false;  // whether a non-empty container has just been opened
    if (head.end() > 0) {
      open(true);
      at_ = head.end();
      span = {.type = JsonType::string, .begin = head.begin};
      span.text = head.string.text;
      span.surrogate = head.string.surrogate;
      wanted = 0;
    } else if (!begin_value(span, wanted, opened)) {
      return false;
    }
    while (true) {
      if (!opened) {  // a value has ended, or an empty container is about to
        if (!close_ended(span, wanted)) return false;
        if (depth_ == 0) return true;
      }
      if (is_object_[depth_ - 1]) {
        skip_space();
        size_t found = kNone;
        if (!key(found)) return false;
        if (depth_ == 1) wanted = found;
      }
      if (!begin_value(span, wanted, opened)) return false;
    }
  }

  /// A value that contains no others, or the beginning of a container.
  bool begin_value(JsonSpan& span, size_t wanted, bool& opened) {
    skip_space();
    const bool member = depth_ == 1;
    if (member) span = {.begin = at_};
    opened = peek() == '{' || peek() == '[';
    if (!opened) {
      JsonType type = JsonType::null;
      if (!scalar(type, member && wanted != kNone ? &span : nullptr)) return false;
      if (member) span.type = type;
      return true;
    }
    const bool object = peek() == '{';
    if (member) span.type = object ? JsonType::object : JsonType::list;
    if (!open(object)) return false;
    skip_space();
    opened = peek() != (object ? '}' : ']');
    return true;
  }

  /// After a value: closes the containers that end here, up to a comma; at_ is then after the
  /// comma, or depth_ is 0.
  bool close_ended(JsonSpan& span, size_t wanted) {
    while (true) {
      if (depth_ == 1) store(span, wanted);
      skip_space();
      const bool object = is_object_[depth_ - 1];
      if (peek() == (object ? '}' : ']')) {
        ++at_;
        if (--depth_ == 0) return true;
        continue;
      }
      if (peek() != ',') return expected(object ? "\",\" or \"}\"" : "\",\" or \"]\"");
      ++at_;
      return true;
    }
  }

  void store(JsonSpan& span, size_t wanted) {
    span.end = at_;
    if (wanted != kNone) spans_[wanted] = span;
  }

  std::string_view line_;
  std::span<const std::string> keys_;
  Spelling spelling_;
  std::span<JsonSpan> spans_;
  char*& room_;
  Complaint& complaint_;
  size_t at_ = 0;
  size_t depth_ = 0;
  std::array<bool, kMaxDepth> is_object_;  // of the depth_ containers that are open
};

}  // namespace

std::string_view name_of(Reason reason) {
  constexpr std::array<std::string_view, kNumReasons> kNames = {
      "malformed JSON",  "missing key",     "wrong type",
      "invalid UTF-8",   "lone surrogate",  "too long",
      "byte order mark", "NUL in the text", "text that the tokenizer cannot encode"};
  return kNames[static_cast<size_t>(reason)];
}

std::string_view name_of(JsonType type) {
  constexpr std::array<std::string_view, 6> kNames = {"a string", "a list",    "an object",
                                                      "a number", "a boolean", "null"};
  return kNames[static_cast<size_t>(type)];
}

bool scan_json(std::string_view line, const JsonHead& head, std::span<const std::string> keys,
               Spelling spelling, std::span<JsonSpan> spans, char*& room, Complaint& complaint) {
  return Scan(line, keys, spelling, spans, room, complaint).run(head);
}

std::vector<std::string_view> member_names(std::string_view line) {
  std::vector<std::string_view> names;
  size_t depth = 0;
  bool wanted = false;  // the next string is a name
  for (size_t at = 0; at < line.size(); ++at) {
    const char c = line[at];
    if (c == '"') {
      const size_t begin = at + 1;
      while (line[++at] != '"') at += line[at] == '\\';
      if (wanted && depth == 1) names.push_back(line.substr(begin, at - begin));
      wanted = false;
    } else if (c == '{' || c == '[') {
      wanted = ++depth == 1;
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (c == ',') {
      wanted = depth == 1;
    }
  }
  return names;
}

bool is_utf8(std::string_view text) { return simdjson::validate_utf8(text.data(), text.size()); }

size_t find_bad_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto byte = [&](size_t i) {
      return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
    };
    const auto tail = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
    const unsigned lead = byte(0);
    const unsigned next = byte(1);
    if (lead < 0x80) {
      at += 1;
    } else if (lead >= 0xC2 && lead < 0xE0 && tail(1)) {
      at += 2;
    } else if (lead >= 0xE0 && lead < 0xF0 && tail(1) && tail(2) &&
               !(lead == 0xE0 && next < 0xA0) && !(lead == 0xED && next > 0x9F)) {
      at += 3;
    } else if (lead >= 0xF0 && lead < 0xF5 && tail(1) && tail(2) && tail(3) &&
               !(lead == 0xF0 && next < 0x90) && !(lead == 0xF4 && next > 0x8F)) {
      at += 4;
    } else {
      return at;
    }
  }
  return kNone;
}

}  // namespace stream
