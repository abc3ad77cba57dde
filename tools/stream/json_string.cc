// SPDX-License-Identifier: MIT
// Room: tools/stream. Strings. The vectors are SSE2's, which every x86-64 processor has.
#include "tools/stream/json_string.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace stream {
namespace {

constexpr std::array<int8_t, 256> kHexValues = [] {
  std::array<int8_t, 256> values{};
  values.fill(-1);
  for (int i = 0; i < 10; ++i) values[static_cast<size_t>('0' + i)] = static_cast<int8_t>(i);
  for (int i = 0; i < 6; ++i) {
    values[static_cast<size_t>('a' + i)] = values[static_cast<size_t>('A' + i)] =
        static_cast<int8_t>(10 + i);
  }
  return values;
}();

/// What a letter after a backslash means; 0 for nothing, and for `u`.
constexpr std::array<char, 256> kEscapes = [] {
  std::array<char, 256> escapes{};
  constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
  for (size_t i = 0; i < kFrom.size(); ++i) escapes[static_cast<uint8_t>(kFrom[i])] = kTo[i];
  return escapes;
}();

/// The letter after the backslash when we escape a character; 0 if there is none.
constexpr std::array<char, 0x60> kLetters = [] {
  std::array<char, 0x60> letters{};
  for (size_t code = 0; code < 0x20; ++code) letters[code] = 'u';
  for (const char letter : std::string_view("\"\\bfnrt")) {
    letters[static_cast<size_t>(kEscapes[static_cast<uint8_t>(letter)])] = letter;
  }
  return letters;
}();

bool is_plain(char c) { return static_cast<uint8_t>(c) >= 0x20 && c != '"' && c != '\\'; }

#if defined(__x86_64__)
/// One bit for each of 16 bytes that is not plain.
unsigned special_of(__m128i bytes) {
  const __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1F)), bytes);
  const __m128i quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"'));
  const __m128i backslash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'));
  return static_cast<unsigned>(
      _mm_movemask_epi8(_mm_or_si128(control, _mm_or_si128(quote, backslash))));
}
#endif

/// What is written while a string is scanned.
enum class Making { nothing, characters, escaped };

/// The place of the first byte from `at` on that is not plain, or the line's end; copies the bytes
/// before it to `to` if a text is written.
template <Making kMaking>
size_t copy_plain(std::string_view line, size_t at, char* to) {
  const size_t begin = at;
#if defined(__x86_64__)
  for (; at + 16 <= line.size(); at += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(line.data() + at));
    if constexpr (kMaking != Making::nothing)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + (at - begin)), bytes);
    const unsigned special = special_of(bytes);
    if (special != 0) return at + static_cast<size_t>(std::countr_zero(special));
  }
#endif
  for (; at < line.size() && is_plain(line[at]); ++at) {
    if constexpr (kMaking != Making::nothing) to[at - begin] = line[at];
  }
  return at;
}

/// The code unit of the four hexadecimal digits at `at`; negative if they are not digits.
int code_unit(std::string_view line, size_t at) {
  if (at + 4 > line.size()) return -1;
  const auto digit = [&](size_t i) { return int{kHexValues[static_cast<uint8_t>(line[at + i])]}; };
  return digit(0) << 12 | digit(1) << 8 | digit(2) << 4 | digit(3);
}

char* append_utf8(unsigned code, char* to) {
  const auto put = [&](unsigned byte) { *to++ = static_cast<char>(byte); };
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
  return to;
}

/// A character that was escaped by its number, as we write it.
char* append_escaped(unsigned code, char* to) {
  const char letter = code < kLetters.size() ? kLetters[code] : '\0';
  if (letter == 0) return append_utf8(code, to);
  *to++ = '\\';
  *to++ = letter;
  if (letter != 'u') return to;
  constexpr std::string_view kHex = "0123456789abcdef";
  for (const char digit : {'0', '0', kHex[code >> 4], kHex[code & 15]}) *to++ = digit;
  return to;
}

/// Reads the \u at `at`, and the one after it if both are a surrogate pair; the character goes to
/// `to`.
template <Making kMaking>
size_t unicode_escape(std::string_view line, size_t at, char*& to, JsonString& out) {
  const int unit = code_unit(line, at + 2);
  if (unit < 0) {
    out.fault = StringFault::bad_digits;
    return at;
  }
  if constexpr (kMaking == Making::nothing) return at + 6;
  auto code = static_cast<unsigned>(unit);
  size_t end = at + 6;
  if (code >= 0xD800 && code < 0xDC00 && line.substr(end, 2) == "\\u") {
    const int low = code_unit(line, end + 2);
    if (low >= 0xDC00 && low < 0xE000) {
      code = 0x10000 + ((code - 0xD800) << 10) + static_cast<unsigned>(low - 0xDC00);
      end += 6;
    }
  }
  if (code < 0xD800 || code >= 0xE000) {
    to = kMaking == Making::escaped ? append_escaped(code, to) : append_utf8(code, to);
  } else if (out.surrogate == std::string_view::npos) {
    out.surrogate = at;
  }
  return end;
}

/// Reads the escape at `at`; on an error stays at it.
template <Making kMaking>
size_t escape(std::string_view line, size_t at, char*& to, JsonString& out) {
  const char kind = at + 1 < line.size() ? line[at + 1] : '\0';
  if (kind == 'u') return unicode_escape<kMaking>(line, at, to, out);
  const char meant = kEscapes[static_cast<uint8_t>(kind)];
  if (meant == 0) {
    out.fault = StringFault::unknown_escape;
    return at;
  }
  if constexpr (kMaking == Making::escaped) {
    if (kind != '/') *to++ = '\\';
    *to++ = kind;
  } else if constexpr (kMaking == Making::characters) {
    *to++ = meant;
  }
  return at + 2;
}

/// Reads from `at` inside a string to its end; returns the end of what was copied to `to`.
template <Making kMaking>
char* finish_string(std::string_view line, size_t begin, size_t at, char* to, JsonString& out) {
  while (true) {
    const size_t end = copy_plain<kMaking>(line, at, to);
    if constexpr (kMaking != Making::nothing) to += end - at;
    at = end;
    if (at >= line.size()) {
      out.fault = StringFault::no_end;
      at = begin;
    } else if (line[at] == '"') {
      out.end = at + 1;
      return to;
    } else if (line[at] == '\\') {
      at = escape<kMaking>(line, at, to, out);
    } else {
      out.fault = StringFault::control;
    }
    if (out.fault != StringFault::none) {
      out.end = at;
      return to;
    }
  }
}

}  // namespace

size_t end_of_plain(std::string_view line, size_t at) {
  return copy_plain<Making::nothing>(line, at, nullptr);
}

JsonString read_escaped(std::string_view line, size_t begin, size_t plain, Spelling spelling,
                        char*& room) {
  JsonString out;
  char* const text = room;
  std::memcpy(text, line.data() + begin + 1, plain - begin - 1);
  char* const to = text + (plain - begin - 1);
  room = spelling == Spelling::escaped
             ? finish_string<Making::escaped>(line, begin, plain, to, out)
             : finish_string<Making::characters>(line, begin, plain, to, out);
  out.text = {text, static_cast<size_t>(room - text)};
  return out;
}

JsonString skip_string(std::string_view line, size_t begin) {
  JsonString out;
  finish_string<Making::nothing>(line, begin, begin + 1, nullptr, out);
  return out;
}

}  // namespace stream
