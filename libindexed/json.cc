// SPDX-License-Identifier: MIT
// Json: a recursive reader with a depth limit of 64 and a writer that follows CPython's json
// encoder to the byte.
#include "libindexed/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "libindexed/format.h"
#include "libindexed/message.h"

namespace indexed {
namespace {

constexpr int kMaxDepth = 64;

void append_utf8(std::string& out, uint32_t code) {
  const auto byte = [&out](uint32_t value) { out += static_cast<char>(value); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xc0 | code >> 6), byte(0x80 | (code & 63));
  } else if (code < 0x10000) {
    byte(0xe0 | code >> 12), byte(0x80 | (code >> 6 & 63)), byte(0x80 | (code & 63));
  } else {
    byte(0xf0 | code >> 18), byte(0x80 | (code >> 12 & 63)), byte(0x80 | (code >> 6 & 63)),
        byte(0x80 | (code & 63));
  }
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  Json document() {
    Json value = read(0);
    skip_space();
    if (at_ != text_.size()) fail("text behind the value");
    return value;
  }

 private:
  [[noreturn]] void fail(const char* why) const {
    throw FormatError(message(path_, ":", at_, ": ", why, ": not the JSON that is expected"));
  }

  void skip_space() {
    while (at_ < text_.size() &&
           std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
      ++at_;
  }

  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  Json read(int depth) {
    if (depth > kMaxDepth) fail("nested too deeply");
    skip_space();
    if (at_ == text_.size()) fail("ends too early");
    switch (text_[at_]) {
      case '{':
        return read_object(depth);
      case '[':
        return read_array(depth);
      case '"':
        return read_string();
      default:
        break;
    }
    if (take("null")) return {};
    if (take("true")) return true;
    if (take("false")) return false;
    return read_number();
  }

  Json read_object(int depth) {
    Json::Object members;
    ++at_;
    skip_space();
    if (take("}")) return members;
    for (;;) {
      skip_space();
      if (at_ == text_.size() || text_[at_] != '"') fail("a key is missing");
      std::string key = read_string();
      skip_space();
      if (!take(":")) fail("a colon is missing");
      members.emplace_back(std::move(key), read(depth + 1));
      skip_space();
      if (take("}")) return members;
      if (!take(",")) fail("a comma is missing");
    }
  }

  Json read_array(int depth) {
    Json::Array items;
    ++at_;
    skip_space();
    if (take("]")) return items;
    for (;;) {
      items.push_back(read(depth + 1));
      skip_space();
      if (take("]")) return items;
      if (!take(",")) fail("a comma is missing");
    }
  }

  uint32_t read_hex() {
    uint32_t code = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (error != std::errc() || end != digits.data() + 4) fail("a bad \\u escape");
    at_ += 4;
    return code;
  }

  std::string read_string() {
    std::string out;
    for (++at_;; ++at_) {
      if (at_ >= text_.size()) fail("a string without an end");
      const char c = text_[at_];
      if (c == '"') break;
      if (static_cast<unsigned char>(c) < 0x20) fail("a raw control character");
      if (c != '\\') {
        out += c;
        continue;
      }
      if (++at_ >= text_.size()) fail("a string without an end");
      const char escape = text_[at_];
      constexpr std::string_view kNames = "\"\\/bfnrt";
      constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
      if (const size_t which = kNames.find(escape); which != std::string_view::npos) {
        out += kValues[which];
        continue;
      }
      if (escape != 'u') fail("an unknown escape");
      ++at_;
      uint32_t code = read_hex();
      if (code >= 0xd800 && code < 0xdc00 && take("\\u")) {
        const uint32_t low = read_hex();
        if (low < 0xdc00 || low > 0xdfff) fail("a lone surrogate");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      }
      if (code >= 0xdc80 && code <= 0xdcff) {  // a byte that was not UTF-8, as Python escapes it
        out += static_cast<char>(code - 0xdc00);
      } else if (code >= 0xd800 && code < 0xe000) {
        fail("a lone surrogate");
      } else {
        append_utf8(out, code);
      }
      --at_;
    }
    ++at_;
    return out;
  }

  Json read_number() {
    const size_t length =
        std::min(text_.find_first_not_of("+-0123456789.eE", at_), text_.size()) - at_;
    const std::string_view word = text_.substr(at_, length);
    int64_t integer = 0;
    if (const auto [end, error] = std::from_chars(word.data(), word.data() + length, integer);
        length > 0 && error == std::errc() && end == word.data() + length) {
      at_ += length;
      return integer;
    }
    double real = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + length, real);
    if (length == 0 || error != std::errc() || end != word.data() + length)
      fail("neither value nor number");
    at_ += length;
    return real;
  }

  std::string_view text_;
  const std::string& path_;
  size_t at_ = 0;
};

// Reads one UTF-8 code point of `text` at `at` and moves `at` past it. A byte that is not UTF-8
// becomes a surrogate as with Python's surrogateescape, which Python uses for file names.
uint32_t next_code_point(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<unsigned char>(text[i]));
  };
  const uint32_t first = byte(at);
  const size_t more = first < 0x80       ? 0
                      : first >> 5 == 6  ? 1
                      : first >> 4 == 14 ? 2
                      : first >> 3 == 30 ? 3
                                         : 9;
  constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
  if (more <= 3 && at + more < text.size()) {
    uint32_t code = more == 0 ? first : first & (0x3fu >> more);
    bool good = true;
    for (size_t i = 1; i <= more; ++i) {
      good = good && byte(at + i) >> 6 == 2;
      code = code << 6 | (byte(at + i) & 63);
    }
    if (good && code >= kLeast[more] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff)) {
      at += more + 1;
      return code;
    }
  }
  ++at;
  return 0xdc00 + first;
}

void append_escape(std::string& out, uint32_t unit) {
  constexpr char kHex[] = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += kHex[unit >> shift & 15];
}

void append_string(std::string& out, std::string_view text) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const uint32_t code = next_code_point(text, at);
    constexpr std::string_view kValues = "\"\\\b\f\n\r\t";
    constexpr std::string_view kNames = "\"\\bfnrt";
    const size_t which =
        code < 0x80 ? kValues.find(static_cast<char>(code)) : std::string_view::npos;
    if (which != std::string_view::npos) {
      out += '\\';
      out += kNames[which];
    } else if (code >= 0x10000) {
      append_escape(out, 0xd800 + ((code - 0x10000) >> 10));
      append_escape(out, 0xdc00 + ((code - 0x10000) & 0x3ff));
    } else if (code < 0x20 || code > 0x7e) {
      append_escape(out, code);
    } else {
      out += static_cast<char>(code);
    }
  }
  out += '"';
}

}  // namespace

std::string python_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  char buffer[400];
  const double size = std::fabs(value);
  const bool fixed = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value,
                                 fixed ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer, end.ptr);
  if (fixed && text.find('.') == std::string::npos) text += ".0";
  return text;
}

Json::Json() noexcept = default;
Json::Json(const Json& other) = default;
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(const Json& other) = default;
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;
Json::Json(bool value) : value_(value) {}
Json::Json(int64_t value) : value_(value) {}
Json::Json(double value) : value_(value) {}
Json::Json(std::string value) : value_(std::move(value)) {}
Json::Json(Array value) : value_(std::move(value)) {}
Json::Json(Object value) : value_(std::move(value)) {}

Json Json::parse(std::string_view text, const std::string& path) {
  return Reader(text, path).document();
}

const Json* Json::find(std::string_view key) const noexcept {
  if (const Object* members = object()) {
    for (const auto& [name, value] : *members) {
      if (name == key) return &value;
    }
  }
  return nullptr;
}

void Json::set(std::string key, Json value) {
  if (is_null()) value_ = Object();
  std::get<Object>(value_).emplace_back(std::move(key), std::move(value));
}

std::string Json::dump(int indent) const {
  std::string out;
  dump_to(out, indent, 0);
  return out;
}

void Json::dump_to(std::string& out, int indent, int depth) const {
  const auto new_line = [&](int level) {
    out.append("\n").append(static_cast<size_t>(indent * level), ' ');
  };
  if (is_null()) {
    out += "null";
  } else if (const bool* flag = std::get_if<bool>(&value_)) {
    out += *flag ? "true" : "false";
  } else if (const int64_t* number = integer()) {
    out += std::to_string(*number);
  } else if (const double* real = std::get_if<double>(&value_)) {
    out += python_float(*real);
  } else if (const std::string* text = string()) {
    append_string(out, *text);
  } else if (const Array* items = array()) {
    out += '[';
    for (size_t i = 0; i < items->size(); ++i) {
      if (i > 0) out += ',';
      new_line(depth + 1);
      (*items)[i].dump_to(out, indent, depth + 1);
    }
    if (!items->empty()) new_line(depth);
    out += ']';
  } else if (const Object* members = object()) {
    out += '{';
    for (size_t i = 0; i < members->size(); ++i) {
      if (i > 0) out += ',';
      new_line(depth + 1);
      append_string(out, (*members)[i].first);
      out += ": ";
      (*members)[i].second.dump_to(out, indent, depth + 1);
    }
    if (!members->empty()) new_line(depth);
    out += '}';
  }
}

}  // namespace indexed
