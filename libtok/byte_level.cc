// The byte-level alphabet, both ways.
// SPDX-License-Identifier: MIT
#include "libtok/byte_level.h"

#include <array>

#include "libtok/unicode.h"

namespace tok {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

struct Alphabet {
  std::array<uint16_t, 256> character{};
  std::array<int16_t, 0x144> byte{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (int16_t& byte : alphabet.byte) byte = -1;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const int character = stands_for_itself(byte) ? byte : next++;
    alphabet.character[static_cast<size_t>(byte)] = static_cast<uint16_t>(character);
    alphabet.byte[static_cast<size_t>(character)] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();
static_assert(kAlphabet.character[' '] == 0x120 && kAlphabet.character[255] == 255);

}  // namespace

char32_t byte_level_character(uint8_t byte) noexcept { return kAlphabet.character[byte]; }

std::optional<std::string> bytes_of_byte_level(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    // The alphabet has only characters of one and two bytes.
    size_t character = static_cast<uint8_t>(text[at++]);
    if (character >= 0x80) {
      const size_t tail = at < text.size() ? static_cast<uint8_t>(text[at++]) : 0;
      if ((character & 0xE0) != 0xC0 || (tail & 0xC0) != 0x80) return std::nullopt;
      character = (character & 0x1F) << 6 | (tail & 0x3F);
      if (character < 0x80) return std::nullopt;  // overlong form
    }
    if (character >= kAlphabet.byte.size() || kAlphabet.byte[character] < 0) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.byte[character]);
  }
  return bytes;
}

std::string byte_level_of_bytes(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (char c : bytes) append_utf8(text, byte_level_character(static_cast<uint8_t>(c)));
  return text;
}

}  // namespace tok
