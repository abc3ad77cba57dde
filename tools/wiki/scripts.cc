// SPDX-License-Identifier: MIT
// How <sup> and <sub> read in plain text (wikitext.h), so that no number changes: 10<sup>6</sup> is
// 10^6, 5<sup>1</sup>/<sub>2</sub> is 5 1/2, 101<sub>2</sub> is 101_2. Text that is usually written
// without marks has none: H<sub>2</sub>O, 1<sup>st</sup>, <sup>14</sup>C, Na<sup>+</sup>.

#include <algorithm>
#include <array>

#include "tools/wiki/gaps.h"
#include "tools/wiki/wikitext.h"

namespace wiki {
namespace {

constexpr char kShield = static_cast<char>(0xFE);
constexpr std::string_view kMinus = "−";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_letter(char c) { return is_lower(c) || is_upper(c); }
bool has_digit(std::string_view text) { return std::any_of(text.begin(), text.end(), is_digit); }

// Without marks of emphasis and seams, trimmed.
std::string plain(std::string_view content) {
  std::string out;
  content = trim(content);
  for (size_t i = 0; i < content.size();) {
    while (content.substr(i).starts_with(kSeam)) i += kSeam.size();
    const size_t run = std::min(content.find_first_not_of('\'', i), content.size()) - i;
    if (run < 2) out.append(content, i, std::max<size_t>(run, 1));
    i += std::max<size_t>(run, 1);
  }
  return out;
}

// The text before a script.
struct Base {
  char last = ' ';      // its last byte, ' ' if the script cannot belong to it
  bool alone = false;   // a single letter
  bool spaced = false;  // a digit, and a space
};

Base base_of(std::string_view before) {
  while (before.ends_with("''") || before.ends_with(kSeam)) {
    if (before.ends_with(kSeam)) before.remove_suffix(kSeam.size());
    while (before.ends_with("''")) before = before.substr(0, before.find_last_not_of('\'') + 1);
  }
  Base base;
  constexpr std::array<std::string_view, 9> kBreaks = {
      "–", "—", "“", "‘", "«", "⁄", "\xC2\xA0", "\xE2\x80\x89", "\xE2\x80\xAF"};
  for (const std::string_view mark : kBreaks) {
    if (!before.ends_with(mark)) continue;
    before.remove_suffix(mark.size());
    const bool space =
        mark == "\xC2\xA0" || mark.starts_with("\xE2\x80\x89") || mark == "\xE2\x80\xAF";
    base.spaced = space && !before.empty() && is_digit(before.back());
    return base;
  }
  if (before.empty()) return base;
  const bool shielded = before.size() > 1 && before[before.size() - 2] == kShield;
  const char last = shielded ? static_cast<char>(before.back() & 0x7F) : before.back();
  if (std::string_view(" \t\n([{|\"'>-/").find(last) != std::string_view::npos) {
    before = trim(before);
    base.spaced = last == ' ' && !before.empty() && is_digit(before.back());
    return base;
  }
  base.last = last;
  base.alone = is_letter(last) && (before.size() < 2 || !is_letter(before[before.size() - 2]));
  return base;
}

bool is_greek(std::string_view text, size_t at) {
  return at + 1 < text.size() && (text[at] == '\xCE' || text[at] == '\xCF');
}

// Whether the letters are variables, given `base` before them. Parts of words are not: 1st, 2e, Mr,
// 12h.
bool are_variables(std::string_view text, const Base& base) {
  const bool capital = is_upper(base.last);
  if (text.empty() || text.size() > 4) return false;
  if (is_letter(base.last) && !base.alone) return false;
  const std::string_view letters = is_digit(base.last) ? "nkxyzijpqrtuvwNT"
                                   : capital           ? "nkijxpqyzNT"
                                                       : "nkxyzijmpqrtuvwNT";
  if (capital && text.size() > 1 && !is_greek(text, 0)) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (is_greek(text, i)) {
      ++i;
    } else if (letters.find(text[i]) == letters.npos) {
      return false;
    }
  }
  return true;
}

// Whether it has an operation: n+1, 2−k, but not 2−, −1 or semi-final.
bool is_sum(std::string_view text) {
  size_t longest = 0, run = 0;
  for (const char c : text) {
    run = is_letter(c) ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  if (longest > 1 || text.size() < 3) return false;
  const auto inside = [&](std::string_view sign) {
    const size_t at = text.find(sign, 1);
    return at != text.npos && at + sign.size() < text.size();
  };
  return inside("+") || inside("-") || inside(kMinus) || inside("=");
}

// One number or variable, with its sign, or a charge: 12, −1.5, n, 2+.
bool is_atom(std::string_view text) {
  for (const std::string_view sign : {std::string_view("+"), std::string_view("-"), kMinus}) {
    if (text.starts_with(sign)) {
      text.remove_prefix(sign.size());
      break;
    }
    if (text.ends_with(sign)) {
      text.remove_suffix(sign.size());
      break;
    }
  }
  if (!text.empty() && std::all_of(text.begin(), text.end(),
                                   [](char c) { return is_digit(c) || c == '.' || c == ','; }))
    return true;
  return text.size() == 1 || (text.size() == 2 && is_greek(text, 0));
}

// `text` after its mark, in brackets if the text that follows would be read as part of it.
std::string marked(char mark, const std::string& text, std::string_view after) {
  const bool joins = is_digit(text.back()) && !after.empty() && is_digit(after.front());
  const bool bracketed = text.front() == '(' && text.find(')') == text.size() - 1;
  if ((is_atom(text) && !joins) || bracketed) return mark + text;
  return std::string(1, mark) + "(" + text + ")";
}

// Whether a <sup> is followed by the stroke of a fraction and its <sub>.
bool before_stroke(std::string_view after) {
  for (const std::string_view stroke : {"/", "⁄", "&frasl;", "&#8260;", "&#x2044;"}) {
    if (after.starts_with(stroke)) return trim(after.substr(stroke.size(), 8)).starts_with("<sub");
  }
  return false;
}

}  // namespace

std::string shown_superscript(std::string_view before, std::string_view content,
                              std::string_view after) {
  const std::string text = plain(content);
  if (text.empty()) return text;
  const Base base = base_of(before);
  if (before_stroke(after)) return (is_digit(base.last) || is_letter(base.last) ? " " : "") + text;
  const bool note = text.front() == '[';
  if (base.last == ' ') {
    const bool isotope = !after.empty() && (is_letter(after.front()) || after.front() == '<' ||
                                            after.front() == '[' || after.front() == '\'');
    return base.spaced && has_digit(text) && !note && !isotope ? marked('^', text, after) : text;
  }
  if (!note && (has_digit(text) || is_sum(text) || are_variables(text, base)))
    return marked('^', text, after);
  const std::string_view unsigned_text =
      std::string_view(text).substr(text.starts_with(kMinus) ? kMinus.size() : text[0] == '-');
  if (unsigned_text.size() < text.size() && are_variables(unsigned_text, base))
    return marked('^', text, after);
  return text;
}

std::string shown_subscript(std::string_view before, std::string_view content,
                            std::string_view after) {
  const std::string text = plain(content);
  if (text.empty()) return text;
  const Base base = base_of(before);
  if (base.last == ' ') return text;
  const bool joins_before =
      is_digit(base.last) && (is_digit(text.front()) || is_letter(text.front()));
  const bool joins_after = is_digit(text.back()) && !after.empty() && is_digit(after.front());
  return joins_before || joins_after || is_sum(text) ? marked('_', text, after) : text;
}

}  // namespace wiki
