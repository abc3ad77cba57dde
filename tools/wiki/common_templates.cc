// SPDX-License-Identifier: MIT
// The table of common_templates.h: template names of the English Wikipedia that carry running text,
// and which of their positional arguments a reader sees. Source: the templates' own documentation
// pages.

#include "tools/wiki/common_templates.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "tools/wiki/wikitext.h"

namespace wiki {
namespace {

// `shown`: digits name positional arguments (1 is the first), other characters are text.
struct Row {
  std::string_view name;
  std::string_view shown;
};
constexpr std::array<Row, 106> kRows = {{
    {"abbr", "1"},
    {"ad", "AD 1"},
    {"angbr", "⟨1⟩"},
    {"angle bracket", "⟨1⟩"},
    {"as of", "As of 1"},
    {"b.", "b. 1"},
    {"bce", "1 BCE"},
    {"big", "1"},
    {"bigger", "1"},
    {"blockquote", "\n1\n"},
    {"bq", "\n1\n"},
    {"c.", "c. 1"},
    {"ca.", "c. 1"},
    {"ce", "1 CE"},
    {"chem", "12345678"},
    {"chem2", "1"},
    {"circa", "c. 1"},
    {"code", "1"},
    {"convert", "1 2"},
    {"cquote", "\n1\n"},
    {"cvt", "1 2"},
    {"d.", "d. 1"},
    {"date", "1"},
    {"dn", "1"},
    {"em", "1"},
    {"fl.", "fl. 1"},
    {"flag", "1"},
    {"flagcountry", "1"},
    {"flagu", "1"},
    {"floruit", "fl. 1"},
    {"formatnum", "1"},
    {"frac", "1/2"},
    {"gaps", "12345"},
    {"gr", "1"},
    {"hmas", "HMAS 1"},
    {"hmcs", "HMCS 1"},
    {"hms", "HMS 1"},
    {"hover title", "2"},
    {"ill", "1"},
    {"interlanguage link", "1"},
    {"ipa", "1"},
    {"ipa-en", "1"},
    {"ipablink", "1"},
    {"ipaplink", "1"},
    {"ipaslink", "1"},
    {"italics correction", "1"},
    {"kbd", "1"},
    {"lang", "2"},
    {"lang-grc", "1"},
    {"lang-sr-cyrl", "1"},
    {"lang-x", "2"},
    {"langx", "2"},
    {"larger", "1"},
    {"linktext", "1"},
    {"m+j", "1"},
    {"math", "1"},
    {"ms", "MS 1"},
    {"mv", "MV 1"},
    {"mvar", "1"},
    {"nihongo", "1"},
    {"nobold", "1"},
    {"nobr", "1"},
    {"nobreak", "1"},
    {"noitalic", "1"},
    {"not a typo", "1"},
    {"nowiki", "1"},
    {"nowrap", "1"},
    {"nowrap1", "1"},
    {"overline", "1"},
    {"poem quote", "\n1\n"},
    {"poemquote", "\n1\n"},
    {"quotation", "\n1\n"},
    {"quote", "\n1\n"},
    {"r.", "r. 1"},
    {"reign", "r. 1–2"},
    {"resize", "2"},
    {"rms", "RMS 1"},
    {"ruby", "1"},
    {"samp", "1"},
    {"script", "2"},
    {"sfrac", "1/2"},
    {"sic", "1"},
    {"slashes", "1"},
    {"small", "1"},
    {"smallcaps", "1"},
    {"smaller", "1"},
    {"ss", "SS 1"},
    {"strikethrough", "1"},
    {"strong", "1"},
    {"sub", "1"},
    {"sup", "1"},
    {"tooltip", "1"},
    {"transl", "2"},
    {"transliteration", "2"},
    {"tt", "1"},
    {"uline", "1"},
    {"underline", "1"},
    {"unicode", "1"},
    {"usns", "USNS 1"},
    {"uss", "USS 1"},
    {"val", "1"},
    {"vanchor", "1"},
    {"var", "1"},
    {"visible anchor", "1"},
    {"vr", "1"},
    {"zh-cn", "1"},
}};
// Those that stand for a character or two, whatever their arguments are.
constexpr std::array<Row, 17> kCharacters = {{
    {"!", "|"},
    {"'", "'"},
    {"'s", "'s"},
    {"=", "="},
    {"dash", "–"},
    {"em dash", "—"},
    {"emdash", "—"},
    {"en dash", "–"},
    {"endash", "–"},
    {"mdash", "—"},
    {"nbsp", " "},
    {"ndash", "–"},
    {"okina", "ʻ"},
    {"snd", " – "},
    {"spaced en dash", " – "},
    {"spaced ndash", " – "},
    {"–", " – "},
}};

constexpr bool before(const Row& row, std::string_view name) { return row.name < name; }
constexpr bool in_order(std::span<const Row> rows) {
  return std::is_sorted(rows.begin(), rows.end(),
                        [](const Row& a, const Row& b) { return before(a, b.name); });
}
static_assert(in_order(kRows) && in_order(kCharacters));

const Row* row_of(std::span<const Row> rows, std::string_view name) {
  const auto found = std::lower_bound(rows.begin(), rows.end(), name, before);
  return found == rows.end() || found->name != name ? nullptr : &*found;
}

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
    if (i < arguments.size() && arguments[i] == ']') brackets = std::max(0, brackets - 1);
    if (i < arguments.size() && (arguments[i] != '|' || brackets > 0)) continue;
    const std::string_view value = arguments.substr(begin, i - begin);
    const size_t equals = value.find('=');
    const bool markup_first = value.find_first_of("<[") < equals;
    if (equals == std::string_view::npos || markup_first) values.push_back(trim(value));
    begin = i + 1;
  }
  return values;
}

// {{lc:Text}} and its kin.
std::string changed_case(std::string_view name, std::string_view call) {
  const size_t colon = call.find(':');
  if (colon == std::string_view::npos) return {};
  const std::string_view function = trim(name.substr(0, name.find(':')));
  const std::string_view text = trim(call.substr(colon + 1));
  if (function == "lc") return lower_case(text);
  if (function == "uc") return upper_case(text);
  if (function == "ucfirst") return upper_first(text);
  if (function == "lcfirst") return lower_first(text);
  if (function == "formatnum") return std::string(text);
  return {};
}

}  // namespace

std::string common_template_text(std::string_view call) {
  constexpr size_t kLongest = 16 << 10;
  constexpr size_t kLongestName = 32;
  const size_t bar = std::min(call.find('|'), call.size());
  if (bar > kLongestName || call.size() > kLongest) return {};
  const std::string name = ascii_lower(trim(call.substr(0, bar)));
  if (const Row* row = row_of(kCharacters, name)) return shield(row->shown);
  if (bar == call.size()) return changed_case(name, call);
  const Row* row = row_of(kRows, name);
  std::string_view shown = row != nullptr ? row->shown : std::string_view();
  if (row == nullptr && name.size() >= 7 && name.size() <= 9 && name.starts_with("lang-"))
    shown = "1";
  if (shown.empty()) return {};
  const std::vector<std::string_view> values = positional(call.substr(bar + 1));
  if (name == "cvt") return converted(std::string(call.substr(bar + 1)) + "|abbr=on", values);
  if (name == "convert") return converted(call.substr(bar + 1), values);
  // {{ill|fr|Titre}}, as it once was, and {{ill|Title|fr|Titre}}.
  const bool code_first =
      values.size() > 1 && values[0].size() <= 3 && ascii_lower(values[0]) == values[0];
  if ((name == "ill" || name.starts_with("interlanguage")) && code_first) shown = "2";
  if (shown == "1/2" && values.size() == 1) return "1/" + std::string(values[0]);
  std::string text;
  for (const char c : shown) {
    if (c < '1' || c > '9') {
      text.push_back(c);
    } else if (const size_t index = static_cast<size_t>(c - '1'); index < values.size()) {
      text += values[index];
    }
  }
  if (shown.front() == '\n') return trim(text).empty() ? std::string() : text;
  return std::string(trim(text));
}

}  // namespace wiki
