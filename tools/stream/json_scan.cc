// SPDX-License-Identifier: MIT
// Room: tools/stream. The scanner: one pass, no recursion, a fixed stack of bits for the nesting.
#include "tools/stream/json_scan.h"

#include <array>
#include <bitset>

#include "tools/cli/text.h"

namespace stream {
namespace {

constexpr size_t kNone = std::string_view::npos;

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// The code unit of the four digits at `at`; -1 where they are none.
int code_unit(std::string_view line, size_t at) {
  if (at + 4 > line.size()) return -1;
  int unit = 0;
  for (size_t i = at; i < at + 4; ++i) {
    const int digit = hex_value(line[i]);
    if (digit < 0) return -1;
    unit = unit * 16 + digit;
  }
  return unit;
}

void append_utf8(unsigned code, std::string& out) {
  const auto put = [&](unsigned byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

/// A pass over one line. Functions return false once complaint_ is set.
class Scan {
 public:
  Scan(std::string_view line, std::span<const std::string> keys, std::span<JsonSpan> spans,
       Complaint& complaint)
      : line_(line), keys_(keys), spans_(spans), complaint_(complaint) {}

  bool run() {
    for (JsonSpan& span : spans_) span = {};
    skip_space();
    if (peek() != '{')
      return expected(at_ == line_.size() ? "a JSON object, the record is empty" : "a JSON object");
    if (!value()) return false;
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

  /// Over the string at at_, without resolving its escapes.
  bool string() {
    const size_t open = at_++;
    while (at_ < line_.size()) {
      const unsigned char c = static_cast<unsigned char>(line_[at_]);
      if (c == '"') {
        ++at_;
        return true;
      }
      if (c < 0x20) {
        return fail(cli::concat("malformed JSON: control character ",
                                cli::quote(line_.substr(at_, 1)),
                                " inside a string, expected an escape"));
      }
      if (c == '\\' && !escape()) return false;
      if (c != '\\') ++at_;
    }
    at_ = open;
    return fail("malformed JSON: the string that opens here does not end");
  }

  bool escape() {
    const char kind = at_ + 1 < line_.size() ? line_[at_ + 1] : '\0';
    if (kind == 'u') {
      if (code_unit(line_, at_ + 2) < 0)
        return fail("malformed JSON: expected four hexadecimal digits after \\u");
      at_ += 6;
      return true;
    }
    if (std::string_view("\"\\/bfnrt").find(kind) == kNone || kind == '\0') {
      return fail(cli::concat("malformed JSON: unknown escape ", cli::quote(line_.substr(at_, 2))));
    }
    at_ += 2;
    return true;
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

  /// A value that holds no others.
  bool scalar(JsonType& type) {
    const char c = peek();
    if (at_ >= line_.size()) return expected("a value");
    if (c == '"') return type = JsonType::string, string();
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
    const size_t begin = at_;
    if (peek() != '"' || at_ >= line_.size()) return expected("a key in double quotes");
    if (!string()) return false;
    if (depth_ == 1) wanted = find_key(begin);
    skip_space();
    if (peek() != ':') return expected("\":\" after the key");
    ++at_;
    return true;
  }

  size_t find_key(size_t begin) {
    std::string_view name = line_.substr(begin + 1, at_ - begin - 2);
    if (name.find('\\') != kNone) {
      key_.clear();
      if (!unescape(line_, begin, key_).whole) return kNone;
      name = key_;
    }
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

  /// The outermost object, and all in it.
  bool value() {
    size_t wanted = kNone;  // of the member of the outermost object that is being read
    JsonSpan span;
    while (true) {
      // At a value.
      skip_space();
      const bool member = depth_ == 1;
      if (member) span.begin = at_;
      bool opened = false;
      if (peek() == '{' || peek() == '[') {
        const bool object = peek() == '{';
        if (member) span.type = object ? JsonType::object : JsonType::list;
        if (!open(object)) return false;
        skip_space();
        opened = peek() != (object ? '}' : ']');
      } else {
        JsonType type = JsonType::null;
        if (!scalar(type)) return false;
        if (member) span.type = type;
      }
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
    }
  }

  /// After a value: closes what ends here, up to a comma; then stands behind the comma, or depth_
  /// is 0.
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
  std::span<JsonSpan> spans_;
  Complaint& complaint_;
  size_t at_ = 0;
  size_t depth_ = 0;
  std::bitset<kMaxDepth> is_object_;
  std::string key_;
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

bool scan_json(std::string_view line, std::span<const std::string> keys, std::span<JsonSpan> spans,
               Complaint& complaint) {
  return Scan(line, keys, spans, complaint).run();
}

Unescaped unescape(std::string_view line, size_t begin, std::string& out) {
  Unescaped result;
  size_t at = begin + 1;
  while (true) {
    const size_t next = line.find_first_of("\"\\", at);
    out.append(line, at, next - at);
    at = next + 1;
    if (line[next] == '"') break;
    const char kind = line[at++];
    if (kind != 'u') {
      constexpr std::string_view kFrom = "\"\\/bfnrt";
      out += "\"\\/\b\f\n\r\t"[kFrom.find(kind)];
      continue;
    }
    unsigned code = static_cast<unsigned>(code_unit(line, at));
    at += 4;
    if (code >= 0xD800 && code < 0xDC00 && line.substr(at, 2) == "\\u") {
      const int low = code_unit(line, at + 2);
      if (low >= 0xDC00 && low < 0xE000) {
        code = 0x10000 + ((code - 0xD800) << 10) + static_cast<unsigned>(low - 0xDC00);
        at += 6;
      }
    }
    if (code >= 0xD800 && code < 0xE000) {
      result.whole = false;
      result.end = at - 6;
      return result;
    }
    append_utf8(code, out);
  }
  result.end = at;
  return result;
}

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
