// SPDX-License-Identifier: MIT
// The table of common_templates.h: template names of the English Wikipedia that carry running text,
// and which of their positional arguments a reader sees. Source: the templates' own documentation
// pages.

#include "tools/wiki/common_templates.h"

#include <algorithm>
#include <array>
#include <vector>

#include "tools/wiki/wikitext.h"

namespace wiki {
namespace {

// `shown`: digits name positional arguments (1 is the first), other characters are text.
struct Row {
  std::string_view name;
  std::string_view shown;
};
constexpr std::array<Row, 42> kRows = {{
    {"abbr", "1"},
    {"angbr", "1"},
    {"as of", "As of 1"},
    {"big", "1"},
    {"c.", "c. 1"},
    {"ca.", "c. 1"},
    {"circa", "c. 1"},
    {"convert", "1 2"},
    {"cvt", "1 2"},
    {"dn", "1"},
    {"em", "1"},
    {"frac", "1/2"},
    {"gaps", "12345"},
    {"gr", "1"},
    {"hms", "HMS 1"},
    {"ill", "1"},
    {"interlanguage link", "1"},
    {"ipa", "1"},
    {"ipa-en", "1"},
    {"lang", "2"},
    {"lang-grc", "1"},
    {"linktext", "1"},
    {"m+j", "1"},
    {"mvar", "1"},
    {"nihongo", "1"},
    {"nobold", "1"},
    {"nobr", "1"},
    {"nobreak", "1"},
    {"not a typo", "1"},
    {"nowrap", "1"},
    {"nowrap1", "1"},
    {"resize", "2"},
    {"script", "2"},
    {"sfrac", "1/2"},
    {"sic", "1"},
    {"small", "1"},
    {"smallcaps", "1"},
    {"transl", "2"},
    {"transliteration", "2"},
    {"unicode", "1"},
    {"uss", "USS 1"},
    {"vr", "1"},
}};

// Positional arguments; links' own bars do not divide. A named argument is skipped, "2=x" is
// positional.
std::vector<std::string_view> positional(std::string_view arguments) {
  constexpr size_t kMost = 8;
  std::vector<std::string_view> values;
  size_t begin = 0;
  int brackets = 0;
  for (size_t i = 0; i <= arguments.size() && values.size() < kMost; ++i) {
    if (i < arguments.size() && arguments[i] != '|' && arguments[i] != '[' && arguments[i] != ']')
      continue;
    if (i < arguments.size() && arguments[i] == '[') ++brackets;
    if (i < arguments.size() && arguments[i] == ']') --brackets;
    if (i < arguments.size() && (arguments[i] != '|' || brackets > 0)) continue;
    const std::string_view value = arguments.substr(begin, i - begin);
    const size_t equals = value.find('=');
    const bool markup_first = value.find_first_of("<[") < equals;
    if (equals == std::string_view::npos || markup_first) values.push_back(trim(value));
    begin = i + 1;
  }
  return values;
}

// {{convert|5|km|mi}} shows "5 km", {{convert|5|to|8|km}} "5 to 8 km", {{convert|5|-|8|km}} "5–8
// km".
std::string converted(const std::vector<std::string_view>& values) {
  constexpr std::array<std::string_view, 10> kBetween = {"to", "and", "or", "by", "x",
                                                         "-",  "–",   "+",  "±",  "to(-)"};
  std::string text;
  size_t i = 0;
  for (; i < values.size(); i += 2) {
    text += values[i];
    if (i + 1 >= values.size()) return text;
    const std::string_view next = values[i + 1];
    if (std::find(kBetween.begin(), kBetween.end(), next) == kBetween.end()) break;
    const bool dash = next == "-" || next == "–";
    text += dash ? "–" : " " + std::string(next == "x" ? "×" : next) + " ";
  }
  return i + 1 < values.size() ? text + " " + std::string(values[i + 1]) : text;
}

}  // namespace

std::string common_template_text(std::string_view call) {
  constexpr size_t kLongest = 2048;
  const size_t bar = call.find('|');
  if (bar == std::string_view::npos || bar > 32 || call.size() > kLongest) return {};
  const std::string name = ascii_lower(trim(call.substr(0, bar)));
  const Row* row =
      std::find_if(kRows.begin(), kRows.end(), [&](const Row& r) { return r.name == name; });
  std::string_view shown = row != kRows.end() ? row->shown : std::string_view();
  if (row == kRows.end() && name.size() >= 7 && name.size() <= 9 && name.starts_with("lang-"))
    shown = "1";
  if (shown.empty()) return {};
  const std::vector<std::string_view> values = positional(call.substr(bar + 1));
  if (name == "convert" || name == "cvt") return converted(values);
  if (shown == "1/2" && values.size() == 1) return "1/" + std::string(values[0]);
  std::string text;
  for (const char c : shown) {
    if (c < '1' || c > '9') {
      text.push_back(c);
    } else if (const size_t index = static_cast<size_t>(c - '1'); index < values.size()) {
      text += values[index];
    }
  }
  return std::string(trim(text));
}

}  // namespace wiki
