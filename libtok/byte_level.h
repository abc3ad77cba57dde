// The byte-level alphabet of GPT-2: 256 printable characters that represent the 256 bytes in
// vocab.json, merges.txt and tokenizer.json. Not here: tokens (vocab.h). Includes: C++ library
// only. Source: GPT-2's bytes_to_unicode; Hugging Face's ByteLevel.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tok {

/// The character of a byte: 188 bytes are themselves as Latin-1 (33..126, 161..172,
/// 174..255), the other 68 are U+0100..U+0143 in ascending order.
char32_t byte_level_character(uint8_t byte) noexcept;

/// The bytes of a text in the byte-level alphabet; none if it has another character or is not
/// UTF-8.
std::optional<std::string> bytes_of_byte_level(std::string_view text);

/// A byte string in the byte-level alphabet, as UTF-8.
std::string byte_level_of_bytes(std::string_view bytes);

}  // namespace tok
