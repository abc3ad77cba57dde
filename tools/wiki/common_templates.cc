// SPDX-License-Identifier: MIT
// The table of common_templates.h: template names of the English Wikipedia that carry running text,
// and which of their values a reader sees. Templates that show numbers are in numbers.cc, dates.cc
// and measures.cc. Source: the templates' own documentation pages.

#include "tools/wiki/common_templates.h"

#include <algorithm>
#include <array>
#include <span>
#include <unordered_map>
#include <vector>

#include "tools/wiki/wikitext.h"

namespace wiki {
namespace {

// `shown`: digits name positional arguments (1 is the first), other characters are text.
struct Row {
  std::string_view name;
  std::string_view shown;
};
constexpr std::array<Row, 86> kRows = {{
    {"abbr", "1"},
    {"ad", "AD 1"},
    {"angbr", "⟨1⟩"},
    {"angle bracket", "⟨1⟩"},
    {"b.", "b. 1"},
    {"background color", "2"},
    {"bc", "1 BC"},
    {"bce", "1 BCE"},
    {"bgcolor", "2"},
    {"big", "1"},
    {"bigger", "1"},
    {"blockquote", "\n1\n"},
    {"bq", "\n1\n"},
    {"ce", "1 CE"},
    {"chem2", "1"},
    {"code", "1"},
    {"color", "2"},
    {"colored text", "2"},
    {"colour", "2"},
    {"cquote", "\n1\n"},
    {"d.", "d. 1"},
    {"date", "1"},
    {"dn", "1"},
    {"em", "1"},
    {"flag", "1"},
    {"flagcountry", "1"},
    {"flagu", "1"},
    {"formatnum", "1"},
    {"gr", "1"},
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
    {"mvar", "1"},
    {"nihongo foot", "1"},
    {"nihongo2", "1"},
    {"nobold", "1"},
    {"nobr", "1"},
    {"nobreak", "1"},
    {"noitalic", "1"},
    {"not a typo", "1"},
    {"nowiki", "1"},
    {"nowrap", "1"},
    {"nowrap1", "1"},
    {"poem quote", "\n1\n"},
    {"poemquote", "\n1\n"},
    {"quotation", "\n1\n"},
    {"quote", "\n1\n"},
    {"resize", "2"},
    {"ruby", "1"},
    {"samp", "1"},
    {"script", "2"},
    {"sic", "1"},
    {"slashes", "1"},
    {"small", "1"},
    {"smallcaps", "1"},
    {"smaller", "1"},
    {"strikethrough", "1"},
    {"strong", "1"},
    {"tooltip", "1"},
    {"transl", "2"},
    {"transliteration", "2"},
    {"tt", "1"},
    {"uline", "1"},
    {"underline", "1"},
    {"unicode", "1"},
    {"vanchor", "1"},
    {"var", "1"},
    {"visible anchor", "1"},
    {"vr", "1"},
    {"zh-cn", "1"},
}};
// Templates for one or two characters, whatever their arguments.
constexpr std::array<Row, 32> kCharacters = {{
    {"!", "|"},
    {"'", "'"},
    {"'s", "'s"},
    {"=", "="},
    {"dash", "–"},
    {"em dash", "—"},
    {"emdash", "—"},
    {"en dash", "–"},
    {"endash", "–"},
    {"hair space", " "},
    {"hairsp", " "},
    {"mdash", "—"},
    {"middot", "·"},
    {"minus", "−"},
    {"nbsp", " "},
    {"ndash", "–"},
    {"nnbsp", " "},
    {"okina", "ʻ"},
    {"pprime", "″"},
    {"prime", "′"},
    {"sdot", "⋅"},
    {"snd", " – "},
    {"spaced en dash", " – "},
    {"spaced ndash", " – "},
    {"thin space", " "},
    {"thinsp", " "},
    {"times", "×"},
    {"·", " · "},
    {"×", "×"},
    {"–", " – "},
    {"•", " • "},
    {"−", "−"},
}};

// Arguments of a call; bars inside links do not separate. "2=x" is the second value.
TemplateCall parse_call(std::string_view arguments) {
  constexpr size_t kMost = 64;
  TemplateCall call;
  call.arguments = arguments;
  size_t begin = 0;
  int brackets = 0;
  for (size_t i = 0; i <= arguments.size(); ++i) {
    if (i < arguments.size() && arguments[i] != '|' && arguments[i] != '[' && arguments[i] != ']')
      continue;
    if (i < arguments.size() && arguments[i] == '[') ++brackets;
    if (i < arguments.size() && arguments[i] == ']') brackets = std::max(0, brackets - 1);
    if (i < arguments.size() && (arguments[i] != '|' || brackets > 0)) continue;
    if (call.values.size() == kMost || call.named.size() == kMost) {
      call.whole = false;
      break;
    }
    const std::string_view value = arguments.substr(begin, i - begin);
    const size_t equals = value.find('=');
    const bool markup_first = value.find_first_of("<[") < equals;
    begin = i + 1;
    if (equals == std::string_view::npos || markup_first) {
      call.values.push_back(trim(value));
      continue;
    }
    const std::string_view name = trim(value.substr(0, equals));
    const size_t position =
        name.size() == 1 && is_digits(name) ? static_cast<size_t>(name[0] - '0') : 0;
    if (position == 0) {
      call.named.emplace_back(name, trim(value.substr(equals + 1)));
      continue;
    }
    if (call.values.size() < position) call.values.resize(position);
    call.values[position - 1] = trim(value.substr(equals + 1));
  }
  return call;
}

// {{lc:Text}} and similar functions.
std::string changed_case(std::string_view name, std::string_view call) {
  const size_t colon = call.find(':');
  if (colon == std::string_view::npos) return {};
  const std::string_view function = trim(name.substr(0, name.find(':')));
  const std::string_view text = trim(call.substr(colon + 1));
  if (function == "lc") return lower_case(text);
  if (function == "uc") return upper_case(text);
  if (function == "ucfirst") return upper_first(text);
  if (function == "lcfirst") return lower_first(text);
  return {};
}

// {{formatnum:1,234|R}}. Without a definition of the language, digits are not grouped here.
std::string formatnum(std::string_view call) {
  const std::string_view inner = call.substr(call.find(':') + 1);
  const size_t bar = std::min(inner.find('|'), inner.size());
  const bool bare = trim(inner.substr(std::min(bar + 1, inner.size()))) == "R";
  return bare ? format_number(trim(inner.substr(0, bar)), "R")
              : std::string(trim(inner.substr(0, bar)));
}

// {{hlist|a|b}} is on one line, {{ubl|a|b}} on several.
std::string list(const TemplateCall& call) {
  std::string text;
  if (!call.whole) return text;
  for (const std::string_view value : call.values) {
    if (!value.empty()) text.append(text.empty() ? "" : ", ").append(value);
  }
  return text;
}

// {{nihongo|English|漢字|romaji}} is English (漢字, romaji); nihongo3 begins with the romaji.
std::string with_brackets(std::string_view first, std::initializer_list<std::string_view> others) {
  std::string inside;
  for (const std::string_view other : others) {
    if (!other.empty()) inside.append(inside.empty() ? "" : ", ").append(other);
  }
  if (first.empty() || inside.empty()) return first.empty() ? inside : std::string(first);
  return std::string(first) + " (" + inside + ")";
}
std::string nihongo(const TemplateCall& call) {
  const std::string_view english = call.at(1), kanji = call.at(2), romaji = call.at(3);
  const std::string_view extra = call.at(4).empty() ? call.get("extra") : call.at(4);
  std::string text = english.empty() ? with_brackets(romaji, {kanji, extra})
                                     : with_brackets(english, {kanji, romaji, extra});
  const std::string_view more = call.at(5).empty() ? call.get("extra2") : call.at(5);
  return more.empty() ? text : text + " " + std::string(more);
}
std::string nihongo3(const TemplateCall& call) {
  return with_brackets(call.at(3), {call.at(2), call.at(1)});
}
std::string last_value(const TemplateCall& call) {
  return call.values.size() < 2 ? std::string() : std::string(call.values.back());
}

// A {{convert}} that shows only the converted number would show a number without its unit.
std::string convert(const TemplateCall& call) {
  const std::string_view shown = call.get("disp");
  const bool alone = shown == "number" || shown == "output number only" || shown == "unit" ||
                     shown == "unit2" || shown == "x";
  return alone || !call.whole ? std::string() : converted(call.arguments, call.values);
}
std::string convert_short(const TemplateCall& call) {
  TemplateCall with = call;
  const std::string arguments = std::string(call.arguments) + "|abbr=on";
  with.arguments = arguments;
  return convert(with);
}

// {{wbr}} and {{shy|syl|la|ble}}: places where a line may break. They show nothing, and do not
// separate digits.
std::string line_break(const TemplateCall& call) {
  std::string text = "<wbr>";
  for (const std::string_view value : call.values) text += value;
  return text;
}

constexpr std::array<ComputedTemplate, 2> kMeasures = {{
    {"convert", convert},
    {"cvt", convert_short},
}};
constexpr std::array<ComputedTemplate, 12> kFunctions = {{
    {"font color", last_value},
    {"fontcolor", last_value},
    {"fontcolour", last_value},
    {"hlist", list},
    {"horizontal list", list},
    {"nihongo", nihongo},
    {"nihongo3", nihongo3},
    {"shy", line_break},
    {"ubl", list},
    {"unbulleted list", list},
    {"unbulletedlist", list},
    {"wbr", line_break},
}};

// {{US$}} without arguments is the sign alone.
std::string money(std::string_view sign, std::string_view arguments) {
  return arguments.empty() ? std::string(sign) : money_text(sign, parse_call(arguments.substr(1)));
}

// The entry for a name: a computed text, a sign before an amount, a row, or characters.
struct Known {
  TemplateText text = nullptr;
  bool number = false;  // a number: part of it would be another number
  std::string_view sign = {}, shown = {}, characters = {};
};
const std::unordered_map<std::string_view, Known>& known_templates() {
  static const auto known = [] {
    std::unordered_map<std::string_view, Known> map;
    for (const auto& rows :
         {number_templates(), date_templates(), std::span<const ComputedTemplate>(kMeasures)}) {
      for (const ComputedTemplate& row : rows) map[row.name] = {.text = row.text, .number = true};
    }
    for (const ComputedTemplate& row : kFunctions) map[row.name].text = row.text;
    for (const MoneyTemplate& row : money_templates())
      map[row.name] = {.number = true, .sign = row.sign};
    for (const Row& row : kRows) map[row.name].shown = row.shown;
    for (const Row& row : kCharacters) map[row.name].characters = row.shown;
    return map;
  }();
  return known;
}

std::string shown_row(std::string_view name, std::string_view shown, const TemplateCall& call) {
  // {{ill|fr|Titre}}, the old form, and {{ill|Title|fr|Titre}}.
  const bool code_first =
      call.values.size() > 1 && call.at(1).size() <= 3 && ascii_lower(call.at(1)) == call.at(1);
  if ((name == "ill" || name.starts_with("interlanguage")) && code_first) shown = "2";
  const bool quoted = shown.front() == '\n';
  std::string text;
  for (const char c : shown) {
    if (c < '1' || c > '9') {
      text.push_back(c);
    } else {
      std::string_view value = call.at(static_cast<size_t>(c - '0'));
      if (value.empty() && quoted) value = call.first_of({"text", "quote", "content"});
      text += value;
    }
  }
  if (quoted) return trim(text).empty() ? std::string() : text;
  return std::string(trim(text));
}

}  // namespace

std::string_view TemplateCall::get(std::string_view name) const {
  for (const auto& [key, value] : named) {
    if (key == name) return value;
  }
  return {};
}

std::string_view TemplateCall::first_of(std::initializer_list<std::string_view> names) const {
  for (const std::string_view name : names) {
    if (const std::string_view value = get(name); !value.empty()) return value;
  }
  return {};
}

bool TemplateCall::only(size_t most, std::initializer_list<std::string_view> names) const {
  if (!whole || values.size() > most) return false;
  return std::all_of(this->named.begin(), this->named.end(), [&](const auto& argument) {
    return argument.second.empty() ||
           std::find(names.begin(), names.end(), argument.first) != names.end();
  });
}

std::string common_template_text(std::string_view call, Missing missing) {
  constexpr size_t kLongest = 16 << 10;
  constexpr size_t kLongestName = 32;
  const size_t bar = std::min(call.find('|'), call.size());
  if (bar > kLongestName || call.size() > kLongest) return {};
  std::array<char, kLongestName> lower;
  const std::string_view written = trim(call.substr(0, bar));
  std::transform(written.begin(), written.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
  const std::string_view name(lower.data(), written.size());
  const auto found = known_templates().find(name);
  Known known = found == known_templates().end() ? Known{} : found->second;
  if (missing != Missing::nothing && known.number) return {};
  if (!known.characters.empty()) return shield(known.characters);
  if (missing == Missing::part_of_number) return {};
  const std::string_view arguments = call.substr(std::min(bar + 1, call.size()));
  if (!known.sign.empty()) return money(known.sign, call.substr(bar));
  if (known.text != nullptr) return known.text(parse_call(arguments));
  if (name.starts_with("formatnum:")) return formatnum(call);
  if (bar == call.size()) return changed_case(name, call);
  if (known.shown.empty() && name.size() >= 7 && name.size() <= 9 && name.starts_with("lang-"))
    known.shown = "1";
  return known.shown.empty() ? std::string() : shown_row(name, known.shown, parse_call(arguments));
}

Missing missing_between(std::string_view call, std::string_view before, std::string_view after) {
  // Remarks on a number, not parts of it.
  constexpr std::array<std::string_view, 17> kRemarks = {"#tag:ref",  "citation needed",
                                                         "cite web",  "cn",
                                                         "dead link", "efn",
                                                         "fact",      "failed verification",
                                                         "fn",        "note",
                                                         "r",         "ref",
                                                         "refn",      "rp",
                                                         "sfn",       "update after",
                                                         "when"};
  const bool touches = (!before.empty() && is_digits(before.substr(before.size() - 1))) ||
                       (!after.empty() && is_digits(after.substr(0, 1)));
  if (!touches) return Missing::text;
  const std::string name = ascii_lower(trim(call.substr(0, std::min<size_t>(call.find('|'), 32))));
  const bool remark = name.starts_with("efn") || name.starts_with("ref ") ||
                      std::find(kRemarks.begin(), kRemarks.end(), name) != kRemarks.end();
  return remark ? Missing::text : Missing::part_of_number;
}

void drop_cut_number(std::string_view call, std::string_view after, std::string& before) {
  constexpr std::array<std::string_view, 12> kContinue = {
      "e", "e-sp", "esp", "frac", "fraction", "sfrac", "su", "x10", "x10^", "±", "×10", "×10^"};
  constexpr std::array<std::string_view, 10> kFunctions = {
      "formatnum", "padleft", "padright", "#expr",   "#ifexpr",
      "#if",       "#ifeq",   "#iferror", "#switch", "#time"};
  constexpr std::string_view kSup = "<sup>", kTimes = "×", kMinus = "−";
  const std::string name = ascii_lower(trim(call.substr(0, std::min<size_t>(call.find('|'), 32))));
  const bool tag = before.ends_with(kSup) && after.starts_with("</sup>");
  std::string_view kept = before;
  if (tag) kept.remove_suffix(kSup.size());
  // A superscript after any number but ten may be a note.
  const bool power = (tag || name == "sup") && kept.ends_with("10");
  const std::string function = name.substr(0, name.find(':'));
  const bool part = std::find(kContinue.begin(), kContinue.end(), name) != kContinue.end() ||
                    std::find(kFunctions.begin(), kFunctions.end(), function) != kFunctions.end();
  if (!power && !part) return;
  while (!kept.empty() && is_digits(kept.substr(kept.size() - 1))) {
    kept = kept.substr(0, kept.find_last_not_of("0123456789.,") + 1);
    if (kept.ends_with(kMinus)) kept.remove_suffix(kMinus.size());
    if (!trim(kept).ends_with(kTimes)) break;
    kept = kept.substr(0, kept.rfind(kTimes));
    kept = kept.substr(0, kept.find_last_not_of(' ') + 1);
  }
  before.erase(kept.size(), before.size() - kept.size() - (tag ? kSup.size() : 0));
}

}  // namespace wiki
