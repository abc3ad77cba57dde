// Decoding of base64.h.
// SPDX-License-Identifier: MIT
#include "libtok/base64.h"

#include <cstdint>

namespace tok {

/// Value of a base64 character; -1 for any other.
static int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool decode_base64(std::string_view text, std::string& out) {
  out.clear();
  if (text.empty() || text.size() % 4 != 0) return false;
  size_t padding = 0;
  while (padding < 2 && text.ends_with('=')) {
    text.remove_suffix(1);
    ++padding;
  }
  uint32_t bits = 0;
  int num_bits = 0;
  for (char c : text) {
    const int value = base64_value(c);
    if (value < 0) return false;
    bits = bits << 6 | static_cast<uint32_t>(value);
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    out += static_cast<char>(bits >> num_bits & 255);
  }
  return (bits & ((1u << num_bits) - 1)) == 0;
}

}  // namespace tok
