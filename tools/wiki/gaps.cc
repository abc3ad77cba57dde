// SPDX-License-Identifier: MIT
// Gaps: see gaps.h.

#include "tools/wiki/gaps.h"

#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <cstdint>

#include "tools/wiki/byte_set.h"

namespace wiki {
namespace {

bool is_ascii(char c) { return static_cast<signed char>(c) >= 0; }

// Most text has an ASCII byte beside a gap, which needs no tables.
bool ends_in_digit(std::string_view text) {
  if (text.empty()) return false;
  if (is_ascii(text.back())) return text.back() >= '0' && text.back() <= '9';
  const std::string_view last = text.substr(text.size() - std::min<size_t>(text.size(), 4));
  int32_t at = static_cast<int32_t>(last.size());
  UChar32 c = 0;
  const auto* bytes = reinterpret_cast<const uint8_t*>(last.data());
  U8_PREV(bytes, 0, at, c);
  return c >= 0 && u_isdigit(c);
}

bool begins_with_digit(std::string_view text) {
  if (text.empty()) return false;
  if (is_ascii(text.front())) return text.front() >= '0' && text.front() <= '9';
  const int32_t length = static_cast<int32_t>(std::min<size_t>(text.size(), 4));
  int32_t at = 0;
  UChar32 c = 0;
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  U8_NEXT(bytes, at, length, c);
  return c >= 0 && u_isdigit(c);
}

// Bytes that markup behind or before a digit ends or begins with: links, emphasis, tags, references
// to characters, variants, switches, calls (up to an argument), seams.
constexpr ByteSet kEndsMarkup("]['>;|:=_-");
constexpr ByteSet kBeginsMarkup("[]'<&{|}_-\xFE\xFF");
// Bytes before an apostrophe that may be gone when emphasis is read.
constexpr ByteSet kBeforeQuote("'[<{_-\xFF");

bool is_emphasis(size_t apostrophes) { return apostrophes != 1; }

std::string_view without_tail(std::string_view text) {
  while (!text.empty()) {
    const size_t end = text.find_last_not_of('\'') + 1;
    const size_t marks = text.size() - end;
    if (marks > 0 && is_emphasis(marks))
      text = text.substr(0, end);
    else if (text.back() == kGap)
      text.remove_suffix(1);
    else if (text.ends_with(kSeam))
      text.remove_suffix(kSeam.size());
    else
      break;
  }
  return text;
}

std::string_view without_head(std::string_view text) {
  while (!text.empty()) {
    const size_t marks = std::min(text.find_first_not_of('\''), text.size());
    if (marks > 0 && is_emphasis(marks))
      text.remove_prefix(marks);
    else if (text.front() == kGap)
      text.remove_prefix(1);
    else if (text.starts_with(kSeam))
      text.remove_prefix(kSeam.size());
    else
      break;
  }
  return text;
}

}  // namespace

void mark_gap(std::string& before, std::string_view after) {
  if (before.empty() || after.empty() || before.back() == kGap) return;
  const bool ends =
      kEndsMarkup.has(before.back()) || before.ends_with(kSeam) || ends_in_digit(before);
  const bool begins = kBeginsMarkup.has(after.front()) || begins_with_digit(after);
  // A label that is empty, as in [[A|{{x}}]], stays empty.
  const bool empty_label = before.back() == '|' && after.front() == ']';
  if (ends && begins && !empty_label) before.push_back(kGap);
}

void mark_seam(std::string& before, std::string_view after) {
  if (before.empty() || before.back() != '\'' || after.empty()) return;
  if (kBeforeQuote.has(after.front())) before += kSeam;
}

bool take_gap(std::string& text) {
  if (text.empty() || text.back() != kGap) return false;
  text.pop_back();
  return true;
}

std::string without_gaps(std::string_view text) {
  std::string out(text);
  std::erase(out, kGap);
  for (size_t at = out.find(kSeam); at != std::string::npos; at = out.find(kSeam, at))
    out.erase(at, kSeam.size());
  return out;
}

std::string change_between_marks(std::string_view text,
                                 const std::function<std::string(std::string_view)>& change) {
  constexpr std::string_view kMarks = "\xFE\xFF";
  std::string out;
  while (!text.empty()) {
    const size_t plain = std::min(text.find_first_of(kMarks), text.size());
    if (plain > 0) out += change(text.substr(0, plain));
    text.remove_prefix(plain);
    const size_t mark = text.starts_with(kSeam.front()) ? 2 : 1;
    out += text.substr(0, mark);
    text.remove_prefix(std::min(mark, text.size()));
  }
  return out;
}

void close_gaps(std::string& text) {
  size_t at = text.find(kGap);
  if (at == std::string::npos) return;
  std::string out;
  out.reserve(text.size());
  size_t from = 0;
  for (; at != std::string::npos; at = text.find(kGap, from)) {
    out.append(text, from, at - from);
    from = at + 1;
    // Of several gaps the first becomes a space, and ends the search for digits from the others.
    const std::string_view after = std::string_view(text).substr(from);
    if (ends_in_digit(without_tail(out)) && begins_with_digit(without_head(after)))
      out.push_back(' ');
    else if (out.ends_with('\'') && after.starts_with('\''))
      out += kSeam;
  }
  text = std::move(out.append(text, from));
}

}  // namespace wiki
