// Unicode for the pre-tokenizers: reading and writing UTF-8, and the general category of every code
// point, in the version that tiktoken 0.14 and Hugging Face tokenizers 0.23 use.
// Not here: normalisation (normalize.h). ICU's categories are never used for cutting: its version
// follows the system, and token ids must not.
// Includes: C++ library only. Positions and lengths are bytes.
// Source: the Unicode Character Database; unicode_tables.cc is made by
// tests/reference/make_unicode_tables.py.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tok {

/// Version of the Unicode Character Database behind class_of().
inline constexpr std::string_view kUnicodeVersion = "16.0.0";

/// A set of character classes; class_of() returns exactly one bit of it.
/// White space is the property \s of the Rust and Oniguruma engines (25 code points), and wins over
/// the general category; the rest of Z does not exist outside it.
using ClassSet = uint16_t;

inline constexpr ClassSet kUpper = 1 << 0;        ///< Lu
inline constexpr ClassSet kLower = 1 << 1;        ///< Ll
inline constexpr ClassSet kTitle = 1 << 2;        ///< Lt
inline constexpr ClassSet kModifier = 1 << 3;     ///< Lm
inline constexpr ClassSet kOtherLetter = 1 << 4;  ///< Lo
inline constexpr ClassSet kMark = 1 << 5;         ///< Mn, Mc, Me
inline constexpr ClassSet kNumber = 1 << 6;       ///< Nd, Nl, No
inline constexpr ClassSet kPunctuation = 1 << 7;  ///< Pc, Pd, Ps, Pe, Pi, Pf, Po
inline constexpr ClassSet kSymbol = 1 << 8;       ///< Sm, Sc, Sk, So
inline constexpr ClassSet kSpace = 1 << 9;        ///< \s
inline constexpr ClassSet kOther = 1 << 10;       ///< the rest of C, unassigned code points too
/// L: any letter.
inline constexpr ClassSet kLetter = kUpper | kLower | kTitle | kModifier | kOtherLetter;

/// Class indices 0..10 (bit numbers of ClassSet) of 64 consecutive code points at a time:
/// the block of `c` is kClassBlocks[kClassBlockOf[c >> 6]]. In UTF-8 terms, c >> 6 is everything
/// but the last continuation byte. Valid for c < 0x110000.
extern const uint16_t kClassBlockOf[0x110000 >> 6];
extern const uint8_t kClassBlocks[][64];

/// Class index (bit number) of a code point. Range: code_point < 0x110000.
inline uint8_t class_index(char32_t code_point) noexcept {
  return kClassBlocks[kClassBlockOf[code_point >> 6]][code_point & 63];
}

/// Class of a code point: one bit. Anything past U+10FFFF is kOther.
inline ClassSet class_of(char32_t code_point) noexcept {
  if (code_point >= 0x110000) return kOther;
  return static_cast<ClassSet>(1u << class_index(code_point));
}

/// Rust's char::is_numeric, in the standard library (Unicode 17.0) with which the wheels of
/// tokenizers 0.23.3 are built: kNumber and thirteen more. Hugging Face's Digits uses it.
inline bool is_rust_number(char32_t code_point) noexcept {
  return class_of(code_point) == kNumber || (code_point >= 0x11DE0 && code_point <= 0x11DE9) ||
         (code_point >= 0x16FF4 && code_point <= 0x16FF6);
}

/// One step through a text: a code point and the bytes it took.
struct CodePoint {
  char32_t value;  ///< kInvalidByte for a byte that starts no well-formed sequence
  size_t length;   ///< 1..4
};

/// What decode() gives for a byte that starts no well-formed sequence; its class is kOther.
inline constexpr char32_t kInvalidByte = 0xFFFFFFFF;

/// Decodes the code point at text[at]. A byte that does not start a well-formed sequence is
/// returned alone.
/// Range: at < text.size().
/// Source: Unicode 16.0, table 3-7 (well-formed UTF-8 byte sequences).
CodePoint decode(std::string_view text, size_t at) noexcept;

/// Appends the UTF-8 form of a code point. Range: a scalar value (no surrogate, < 0x110000).
void append_utf8(std::string& out, char32_t code_point);

/// Position of the first byte that is not part of well-formed UTF-8; text.size() when there is
/// none. Source: Unicode 16.0, table 3-7; equals CPython's UnicodeDecodeError.start.
size_t find_invalid_utf8(std::string_view text) noexcept;

/// A copy in which every maximal subpart of an ill-formed sequence is one U+FFFD.
/// Source: Unicode 16.0, section 3.9; equals CPython's bytes.decode("utf-8", "replace").
std::string replace_invalid_utf8(std::string_view text);

}  // namespace tok
