// SPDX-License-Identifier: MIT
// Decoding of character references. The table of names is generated: entities_tables.cc.
// Windows-1252 numbers (&#150;) are decoded as browsers do, since old articles have them.

#include "tools/wiki/entities.h"

#include <algorithm>

namespace wiki {
namespace {

// How browsers decode &#128; to &#159; (WHATWG HTML, "numeric character reference end state").
constexpr std::array<uint16_t, 32> kWindows1252 = {
    0x20AC, 0x81,   0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021, 0x02C6, 0x2030, 0x0160,
    0x2039, 0x0152, 0x8D,   0x017D, 0x8F,   0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
    0x2013, 0x2014, 0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0x9D,   0x017E, 0x0178};

int digit_value(char c, int base) {
  int value = -1;
  if (c >= '0' && c <= '9') value = c - '0';
  if (c >= 'a' && c <= 'f') value = c - 'a' + 10;
  if (c >= 'A' && c <= 'F') value = c - 'A' + 10;
  return value < base ? value : -1;
}

size_t decode_number(std::string_view text, size_t at, std::string& out) {
  size_t i = at + 2;
  const bool hexadecimal = i < text.size() && (text[i] == 'x' || text[i] == 'X');
  if (hexadecimal) ++i;
  const int base = hexadecimal ? 16 : 10;
  const size_t first = i;
  uint32_t value = 0;
  while (i < text.size() && i - first < 10 && digit_value(text[i], base) >= 0) {
    value = std::min<uint32_t>(value, 0x1000000) * static_cast<uint32_t>(base) +
            static_cast<uint32_t>(digit_value(text[i], base));
    ++i;
  }
  if (i == first || i >= text.size() || text[i] != ';') return 0;
  if (value >= 0x80 && value <= 0x9F) value = kWindows1252[value - 0x80];
  append_utf8(value, out);
  return i + 1 - at;
}

}  // namespace

void append_utf8(uint32_t code_point, std::string& out) {
  if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point <= 0xDFFF) || code_point == 0) {
    code_point = 0xFFFD;
  }
  const auto put = [&out](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

size_t decode_entity(std::string_view text, size_t at, std::string& out) {
  if (at + 2 >= text.size()) return 0;
  if (text[at + 1] == '#') return decode_number(text, at, out);
  constexpr size_t kLongestName = 8;  // thetasym
  const std::string_view near = text.substr(at + 1, kLongestName + 1);
  const size_t length = near.find(';');
  if (length == std::string_view::npos) return 0;
  const std::string_view name = near.substr(0, length);
  const Entity* row =
      std::lower_bound(kEntities.begin(), kEntities.end(), name,
                       [](const Entity& e, std::string_view n) { return e.name < n; });
  if (row == kEntities.end() || row->name != name) return 0;
  append_utf8(row->code_point, out);
  return length + 2;
}

std::string decode_entities(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t i = 0;
  while (i < text.size()) {
    const size_t next = std::min(text.find('&', i), text.size());
    out.append(text, i, next - i);
    if (next == text.size()) break;
    const size_t length = decode_entity(text, next, out);
    if (length == 0) out.push_back('&');
    i = next + std::max<size_t>(length, 1);
  }
  return out;
}

}  // namespace wiki
