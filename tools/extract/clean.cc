// SPDX-License-Identifier: MIT
// Room: tools/extract. The four steps of cleaning. Each returns after one scan if a text needs no
// change. Not here: which documents stay (json-extract.cc).
#include "tools/extract/clean.h"

#include <array>
#include <cstring>
#include <stdexcept>

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

namespace extract {
namespace {

/// Windows-1252's characters for the bytes 0x80 to 0x9F; 0 where it has none, and Latin-1's control
/// character is used.
constexpr std::array<char16_t, 32> kWindows1252 = {
    0x20AC, 0,      0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021, 0x02C6, 0x2030, 0x0160,
    0x2039, 0x0152, 0,      0x017D, 0,      0,      0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
    0x2013, 0x2014, 0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0,      0x017E, 0x0178};

/// The byte of a character in Latin-1 or Windows-1252, or -1. Only bytes from 0x80 on matter here.
int byte_of(UChar32 c) {
  if (c >= 0x80 && c <= 0xFF) return static_cast<int>(c);
  if (c < 0x152 || c > 0x2122) return -1;
  for (size_t i = 0; i < kWindows1252.size(); ++i) {
    if (kWindows1252[i] == c) return static_cast<int>(0x80 + i);
  }
  return -1;
}

UChar32 next_character(std::string_view text, int32_t& at) {
  UChar32 c = 0;
  const char* bytes = text.data();
  U8_NEXT_UNSAFE(bytes, at, c);
  return c;
}

void append(UChar32 c, std::string& out) {
  char bytes[U8_MAX_LENGTH];
  int32_t size = 0;
  U8_APPEND_UNSAFE(bytes, size, c);
  out.append(bytes, static_cast<size_t>(size));
}

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

/// Decodes the bytes of `run`'s characters as UTF-8; false if they are not valid UTF-8.
bool read_again(std::string_view run, std::string& out) {
  std::string bytes;
  for (int32_t at = 0; at < static_cast<int32_t>(run.size());) {
    const int byte = byte_of(next_character(run, at));
    if (byte < 0) return false;
    bytes += static_cast<char>(byte);
  }
  out.clear();
  const uint8_t* data = reinterpret_cast<const uint8_t*>(bytes.data());
  const int32_t size = static_cast<int32_t>(bytes.size());
  for (int32_t at = 0; at < size;) {
    UChar32 c = 0;
    U8_NEXT(data, at, size, c);
    if (c < 0) return false;
    append(c, out);
  }
  return true;
}

/// Whether `text` has control characters U+0080 to U+009F, which correctly decoded text never has.
bool has_c1(std::string_view text) {
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    if (text[i] == '\xC2' && static_cast<unsigned char>(text[i + 1]) < 0xA0) return true;
  }
  return false;
}

/// The best decoding of a run of characters that are all bytes: the deepest of three levels without
/// control characters; the run itself if there is none.
std::string best_reading(std::string_view run) {
  constexpr int kRounds = 3;
  std::string best(run);
  std::string level(run);
  std::string next;
  for (int round = 0; round < kRounds && read_again(level, next); ++round) {
    level.swap(next);
    if (!has_c1(level)) best = level;
  }
  return best;
}

/// Length in bytes of one misread character at the front of `text`, with its lead and its tail; 0
/// for none.
size_t misread_length(std::string_view text) {
  int32_t at = 0;
  const int lead = byte_of(next_character(text, at));
  if (lead < 0xC2 || lead > 0xF4) return 0;
  for (int tail = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3; tail > 0; --tail) {
    if (at >= static_cast<int32_t>(text.size())) return 0;
    const int byte = byte_of(next_character(text, at));
    if (byte < 0x80 || byte > 0xBF) return 0;
  }
  return static_cast<size_t>(at);
}

/// Decodes a run as a whole if possible, else its misread characters one by one.
void append_repaired(std::string_view run, std::string& out) {
  const std::string whole = best_reading(run);
  if (whole != run) {
    out += whole;
    return;
  }
  while (!run.empty()) {
    const size_t length = misread_length(run);
    int32_t one = 0;
    next_character(run, one);
    if (length > 0)
      out += best_reading(run.substr(0, length));
    else
      out += run.substr(0, static_cast<size_t>(one));
    run.remove_prefix(length > 0 ? length : static_cast<size_t>(one));
  }
}

void normalize(Normalize form, std::string& text, std::string& scratch) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = form == Normalize::nfc
                                           ? icu::Normalizer2::getNFCInstance(status)
                                           : icu::Normalizer2::getNFKCInstance(status);
  if (U_FAILURE(status) || normalizer == nullptr)
    throw std::runtime_error("ICU: no normalisation data");
  const icu::StringPiece piece(text.data(), static_cast<int32_t>(text.size()));
  if (normalizer->isNormalizedUTF8(piece, status)) return;
  scratch.clear();
  icu::StringByteSink<std::string> sink(&scratch);
  normalizer->normalizeUTF8(0, piece, sink, nullptr, status);
  if (U_FAILURE(status)) throw std::runtime_error("ICU: normalisation failed");
  text.swap(scratch);
}

void trim(std::string& text) {
  const int32_t size = static_cast<int32_t>(text.size());
  int32_t begin = 0;
  while (begin < size) {
    int32_t next = begin;
    if (!u_isUWhiteSpace(next_character(text, next))) break;
    begin = next;
  }
  int32_t end = size;
  while (end > begin) {
    int32_t previous = end - 1;
    while ((text[static_cast<size_t>(previous)] & 0xC0) == 0x80) --previous;
    int32_t next = previous;
    if (!u_isUWhiteSpace(next_character(text, next))) break;
    end = previous;
  }
  text.erase(static_cast<size_t>(end));
  text.erase(0, static_cast<size_t>(begin));
}

void collapse(std::string& text, std::string& scratch) {
  scratch.clear();
  bool space = false;     // blanks were seen since the last character
  int64_t line_ends = 0;  // since the last character
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ' || c == '\t') {
      space = true;
    } else if (c == '\n' || c == '\r') {
      if (c == '\r' && i + 1 < text.size() && text[i + 1] == '\n') ++i;
      ++line_ends;
    } else {
      if (line_ends > 0)
        scratch.append(line_ends > 1 ? "\n\n" : "\n");
      else if (space)
        scratch += ' ';
      scratch += c;
      space = false;
      line_ends = 0;
    }
  }
  text.swap(scratch);
}

}  // namespace

bool repair_mojibake(std::string& text, std::string& scratch) {
  // The first misread byte has become one of U+00C2 to U+00F4, which all begin with this byte.
  if (text.find('\xC3') == std::string::npos) return false;
  scratch.clear();
  const int32_t size = static_cast<int32_t>(text.size());
  for (int32_t at = 0; at < size;) {
    const size_t begin = static_cast<size_t>(at);
    if (is_ascii(text[begin])) {
      scratch += text[begin];
      ++at;
      continue;
    }
    int32_t end = at;
    for (int32_t next = at; next < size && !is_ascii(text[static_cast<size_t>(next)]); end = next) {
      if (byte_of(next_character(text, next)) < 0) break;
    }
    if (end == at) {  // a character that is not a byte
      next_character(text, at);
      scratch.append(text, begin, static_cast<size_t>(at) - begin);
      continue;
    }
    append_repaired(std::string_view(text).substr(begin, static_cast<size_t>(end - at)), scratch);
    at = end;
  }
  if (scratch == text) return false;
  text.swap(scratch);
  return true;
}

void clean_control(ControlCharacters control, std::string& text) {
  if (control == ControlCharacters::keep) return;
  size_t out = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    const bool c1 =
        c == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    const bool is_control = c1 || c == 0x7F || (c < 0x20 && c != '\t' && c != '\n' && c != '\r');
    if (c1) ++i;
    if (!is_control)
      text[out++] = static_cast<char>(c);
    else if (control == ControlCharacters::space)
      text[out++] = ' ';
  }
  text.resize(out);
}

void clean_whitespace(Whitespace whitespace, std::string& text, std::string& scratch) {
  if (whitespace == Whitespace::keep) return;
  if (whitespace == Whitespace::collapse) collapse(text, scratch);
  trim(text);
}

int64_t count_characters(std::string_view text) {
  // Counts all bytes except those of the form 10xxxxxx, eight at a time: each adds one to its lane,
  // and the product sums the lanes.
  constexpr uint64_t kOnes = 0x0101010101010101u;
  uint64_t inside = 0;
  size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + at, sizeof word);
    inside += ((word >> 7 & ~(word >> 6) & kOnes) * kOnes) >> 56;
  }
  for (; at < text.size(); ++at) inside += (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
  return static_cast<int64_t>(text.size() - inside);
}

bool clean(const CleanOptions& options, std::string& text, std::string& scratch) {
  const bool repaired = options.repair_mojibake && repair_mojibake(text, scratch);
  clean_control(options.control, text);
  if (options.normalize != Normalize::none) normalize(options.normalize, text, scratch);
  clean_whitespace(options.whitespace, text, scratch);
  return repaired;
}

}  // namespace extract
