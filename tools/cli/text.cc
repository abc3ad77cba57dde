// SPDX-License-Identifier: MIT
// Room: tools/cli. Words and numbers for people.
#include "tools/cli/text.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace cli {
namespace {

/// Length of the UTF-8 character at the front of `text`; 0 if it is not a valid character.
size_t character_length(std::string_view text) {
  const unsigned char lead = static_cast<unsigned char>(text[0]);
  const size_t length = lead < 0x80   ? 1
                        : lead < 0xC2 ? 0
                        : lead < 0xE0 ? 2
                        : lead < 0xF0 ? 3
                        : lead < 0xF5 ? 4
                                      : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 0;
  }
  if (length == 2 && lead == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0) return 0;  // C1
  const unsigned char second = length > 1 ? static_cast<unsigned char>(text[1]) : 0;
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
      (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) {
    return 0;
  }
  return length;
}

/// Whether a character of three bytes breaks lines (U+2028, U+2029) or changes the direction of the
/// text after it (U+202A to U+202E, U+2066 to U+2069), so that a line looks different from its
/// content.
bool misleads(std::string_view character) {
  if (character.size() != 3 || character[0] != '\xe2') return false;
  const auto second = static_cast<unsigned char>(character[1]);
  const auto third = static_cast<unsigned char>(character[2]);
  return (second == 0x80 && third >= 0xa8 && third <= 0xae) ||
         (second == 0x81 && third >= 0xa6 && third <= 0xa9);
}

/// Removes the first character from `text` and returns it in a form that is safe on a terminal.
std::string take_shown(std::string_view& text) {
  const size_t length = character_length(text);
  const std::string_view character = text.substr(0, length == 0 ? 1 : length);
  text.remove_prefix(character.size());
  const auto first = static_cast<unsigned char>(character[0]);
  char escape[8];
  if (misleads(character)) {
    const unsigned code = 0x2000U | (static_cast<unsigned char>(character[1]) & 0x3fU) << 6 |
                          (static_cast<unsigned char>(character[2]) & 0x3fU);
    std::snprintf(escape, sizeof escape, "\\u%04x", code);
  } else if (length == 0 || first < 0x20 || first == 0x7F) {
    if (first == '\n') return "\\n";
    if (first == '\t') return "\\t";
    if (first == '\r') return "\\r";
    std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned>(first));
  } else {
    return std::string(character);
  }
  return escape;
}

}  // namespace

std::string join(const std::vector<std::string>& items, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += separator;
    out += items[i];
  }
  return out;
}

std::string with_commas(int64_t count) {
  std::string out = std::to_string(count);
  const size_t first = count < 0 ? 1 : 0;
  for (size_t at = out.size(); at > first + 3;) {
    at -= 3;
    out.insert(at, 1, ',');
  }
  return out;
}

std::string counted(int64_t count, std::string_view noun) {
  return concat(with_commas(count), " ", noun, count == 1 ? "" : "s");
}

std::string quote(std::string_view text, size_t limit) {
  std::string out = "\"";
  while (!text.empty()) {
    const char first = text[0];
    std::string piece = take_shown(text);
    if (first == '"' || first == '\\') piece = {'\\', first};
    if (out.size() - 1 + piece.size() > limit) return out + "...\"";
    out += piece;
  }
  return out + '"';
}

std::string one_line(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) out += take_shown(text);
  return out;
}

std::string shell_word(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos) {
    return std::string(word);
  }
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string readable_bytes(double bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  while (bytes >= 1023.95 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, kUnits[unit]);
  return buffer;
}

std::string readable_time(double seconds) {
  const int64_t whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return concat(whole, " s");
  if (whole < 3600) return concat(whole / 60, " min ", whole % 60, " s");
  return concat(whole / 3600, " h ", whole % 3600 / 60, " min");
}

}  // namespace cli
