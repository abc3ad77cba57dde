// UTF-8: decoding, checking, repair. Not here: the class tables (unicode_tables.cc).
// Includes: unicode.h. Functions accept any bytes.
// SPDX-License-Identifier: MIT
#include "libtok/unicode.h"

#include <cstring>

namespace tok {
namespace {

/// What the first byte of a sequence determines: its length (0: no sequence begins with it) and the
/// permitted range of the second byte, which excludes overlong forms, surrogates and values past
/// the end of Unicode.
struct Lead {
  uint8_t length;
  uint8_t low;
  uint8_t high;
};

constexpr Lead lead_of(uint8_t byte) noexcept {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

uint8_t byte_at(std::string_view text, size_t at) noexcept {
  return static_cast<uint8_t>(text[at]);
}

/// How many bytes at `at` agree with one well-formed sequence: the maximal subpart. The sequence is
/// whole when this equals lead_of(first).length.
size_t matching_bytes(std::string_view text, size_t at, Lead lead) noexcept {
  size_t matched = 1;
  while (matched < lead.length && at + matched < text.size()) {
    uint8_t byte = byte_at(text, at + matched);
    uint8_t low = matched == 1 ? lead.low : 0x80;
    uint8_t high = matched == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) break;
    ++matched;
  }
  return matched;
}

}  // namespace

CodePoint decode(std::string_view text, size_t at) noexcept {
  uint8_t first = byte_at(text, at);
  if (first < 0x80) return {first, 1};
  Lead lead = lead_of(first);
  if (lead.length == 0 || matching_bytes(text, at, lead) != lead.length) return {kInvalidByte, 1};
  char32_t value = first & (0x7Fu >> lead.length);
  for (size_t i = 1; i < lead.length; ++i) value = value << 6 | (byte_at(text, at + i) & 0x3Fu);
  return {value, lead.length};
}

void append_utf8(std::string& out, char32_t code_point) {
  auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 63));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 63));
    put(0x80 | (code_point & 63));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 63));
    put(0x80 | (code_point >> 6 & 63));
    put(0x80 | (code_point & 63));
  }
}

size_t find_invalid_utf8(std::string_view text) noexcept {
  size_t at = 0;
  while (at < text.size()) {
    while (at + 8 <= text.size()) {
      uint64_t word;
      std::memcpy(&word, text.data() + at, 8);
      if (word & 0x8080808080808080u) break;
      at += 8;
    }
    if (at == text.size()) break;
    Lead lead = lead_of(byte_at(text, at));
    if (lead.length == 0 || matching_bytes(text, at, lead) != lead.length) return at;
    at += lead.length;
  }
  return text.size();
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 16);
  while (!text.empty()) {
    size_t valid = find_invalid_utf8(text);
    out.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) break;
    Lead lead = lead_of(byte_at(text, 0));
    append_utf8(out, 0xFFFD);
    text.remove_prefix(lead.length == 0 ? 1 : matching_bytes(text, 0, lead));
  }
  return out;
}

}  // namespace tok
