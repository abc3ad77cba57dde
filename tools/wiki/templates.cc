// SPDX-License-Identifier: MIT
// Expansion of template calls. A call is found by matching braces, its name and arguments are
// expanded first, then its body with them. Every level copies its text once; depth, calls and bytes
// are counted.

#include "tools/wiki/templates.h"

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tools/wiki/byte_set.h"
#include "tools/wiki/common_templates.h"
#include "tools/wiki/gaps.h"
#include "tools/wiki/wikitext.h"

namespace wiki {
namespace {

constexpr int kDeepest = 40;
constexpr size_t kMostOpen = 1 << 20;  // braces of a page that are examined, in pairs

// One call or parameter: its braces and what is between them.
struct Call {
  size_t begin;
  size_t length;  // braces on each side: 2 or 3
  size_t end;
};

constexpr ByteSet kBraces("{}");

// The outermost calls of `text`, in order, found in one pass. Runs of braces pair as MediaWiki
// pairs them: innermost first, three before two; what does not close is text.
std::vector<Call> outermost_calls(std::string_view text) {
  struct Opening {
    size_t begin;
    size_t left;  // unclosed braces of this run
    size_t calls_before;
  };
  std::vector<Opening> open;
  std::vector<Call> calls;
  size_t at = 0;
  while (calls.size() < kMostOpen && (at = find_in<kBraces>(text, at)) < text.size()) {
    const size_t run = std::min(text.find_first_not_of(text[at], at), text.size()) - at;
    if (text[at] == '{') {
      if (run >= 2 && open.size() < kMostOpen) open.push_back({at, run, calls.size()});
    } else {
      size_t left = run;
      while (left >= 2 && !open.empty()) {
        Opening& opening = open.back();
        const size_t length = std::min<size_t>({left, opening.left, 3});
        left -= length;
        opening.left -= length;
        calls.resize(opening.calls_before);
        calls.push_back({opening.begin + opening.left, length, at + run - left});
        if (opening.left < 2) open.pop_back();
      }
    }
    at += run;
  }
  return calls;
}

// Splits a call at its own bars, not at those of inner calls, links or protected text. The last of
// `most` parts has the rest.
std::vector<std::string_view> split_bars(std::string_view inner, size_t most) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  int braces = 0;
  int brackets = 0;
  for (size_t i = 0; i < inner.size(); ++i) {
    const char c = inner[i];
    if (c == '{') ++braces;
    if (c == '}') --braces;
    if (c == '[') ++brackets;
    if (c == ']') brackets = std::max(0, brackets - 1);
    if (c == '|' && braces <= 0 && brackets < 2 && parts.size() + 1 < most) {
      parts.push_back(inner.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  parts.push_back(inner.substr(begin));
  return parts;
}

struct Argument {
  std::string text;
  bool incomplete = false;  // a call in it showed nothing, because it cannot be computed here
};
using Arguments = std::unordered_map<std::string, Argument>;

// What {{#expr:}} and {{#ifexpr:}} give for an expression that has no value, for {{#iferror:}}.
constexpr std::string_view kNoValue = "<strong class=\"error\"></strong>";

// Whether a function of this name shows something else if a part of its first argument is missing:
// a number, or a choice between texts.
bool depends_on_every_part(std::string_view function) {
  constexpr std::array<std::string_view, 8> kNames = {
      "formatnum", "#expr", "#ifexpr", "#ifeq", "#switch", "#iferror", "#ifexist", "#titleparts"};
  return std::find(kNames.begin(), kNames.end(), function) != kNames.end();
}

// `change` applied to the text between elements whose content is no wikitext (<ref>, <nowiki>): in
// MediaWiki, too, functions see none of it.
template <class Change>
std::string between_elements(std::string_view text, const Change& change) {
  std::string out;
  size_t from = 0;
  for (size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<', at)) {
    const size_t end = element_end(text, at);
    if (end == std::string_view::npos) break;  // once for all: a search for each would take long
    if (end == at) {
      ++at;
      continue;
    }
    if (at > from) out += change(text.substr(from, at - from));
    out += text.substr(at, end - at);
    at = from = end;
  }
  return from < text.size() ? out += change(text.substr(from)) : out;
}

// An argument without its references, which strip_blocks would remove only after the call is shown.
std::string without_dropped(std::string_view argument) {
  std::string out;
  size_t from = 0;
  for (size_t at = argument.find('<'); at != std::string_view::npos; at = argument.find('<', at)) {
    const size_t end = element_end(argument, at);
    if (end == std::string_view::npos) break;
    if (end == at || element_kind(parse_tag(argument, at).name) != ElementKind::dropped) {
      at = std::max(at + 1, end);
      continue;
    }
    out += argument.substr(from, at - from);
    mark_gap(out, end < argument.size() ? argument.substr(end) : "|");
    at = from = end;
  }
  return out += argument.substr(from);
}

class Expander {
 public:
  Expander(const TemplateStore& store, const PageNames& page, const ExpansionLimits& limits)
      : store_(store), page_(page), limits_(limits) {}

  std::string text(std::string_view source, const Arguments* arguments, int depth) {
    if (depth >= kDeepest || made_ >= limits_.made_bytes) return std::string(source);
    std::string out;
    size_t at = 0;
    size_t from_calls = 0;
    for (const Call& found : outermost_calls(source)) {
      out.append(source, at, found.begin - at);
      at = found.end;
      if (made_ >= limits_.made_bytes || (depth == 0 && from_calls >= limits_.shown_bytes))
        continue;
      const std::string_view inner =
          source.substr(found.begin + found.length, found.end - found.begin - 2 * found.length);
      const int64_t before = removed_;
      const std::string shown = found.length == 3 ? parameter(inner, arguments, depth + 1)
                                                  : call(inner, arguments, depth + 1);
      if ((shown.empty() && removed_ > before) || shown == kNoValue) {
        take_gap(out);
        drop_cut_number(inner, source.substr(found.end), out);
        missing_ = std::max(missing_, missing_between(inner, out, source.substr(found.end)));
        part_digits(out, source.substr(found.end), depth > 0);
      }
      const bool built_in = std::exchange(built_in_, false);
      if (built_in) mark_seam(out, shown);
      out += shown;
      if (built_in) mark_seam(out, source.substr(found.end));
      from_calls += shown.size();
      made_ += shown.size();
    }
    out.append(source, at, source.size() - at);
    made_ += out.size() - from_calls;
    return out;
  }

 private:
  // Digits on both sides of a call that is removed are two numbers. What is around an argument or a
  // body is not seen from `inside`; that which shows nothing stays empty.
  static void part_digits(std::string& before, std::string_view after, bool inside) {
    const bool touches = !before.empty() && is_digits(before.substr(before.size() - 1)) &&
                         is_digits(after.substr(0, 1));
    const bool begins = inside && trim(before).empty();
    const bool ends = inside && trim(after).empty();
    if (touches) return before.push_back(' ');
    const bool empty = begins || before.ends_with(':') || before.ends_with('=');
    if (ends && empty) return;
    std::string edge = "]";  // or any other markup
    mark_gap(begins ? edge : before, ends ? "[" : after);
    if (begins && take_gap(edge)) before.push_back(kGap);
  }

  std::string parameter(std::string_view inner, const Arguments* arguments, int depth) {
    const std::vector<std::string_view> parts = split_bars(inner, limits_.parts_of_call);
    const std::string name(trim(text(parts[0], arguments, depth)));
    if (arguments != nullptr) {
      const auto found = arguments->find(name);
      if (found != arguments->end()) {
        removed_ += found->second.incomplete;
        return found->second.text;
      }
    }
    return parts.size() > 1 ? text(parts[1], arguments, depth) : std::string();
  }

  std::string call(std::string_view inner, const Arguments* outer, int depth) {
    if (++calls_ > limits_.calls || read_ > limits_.read_bytes) return {};
    const std::vector<std::string_view> parts = split_bars(inner, limits_.parts_of_call);
    parts_ += parts.size();
    if (parts_ > limits_.parts) return {};
    const Missing elsewhere = std::exchange(missing_, Missing::nothing);
    const int64_t before = removed_;
    std::string name(trim(text(parts[0], outer, depth)));
    const bool incomplete = removed_ > before;
    missing_ = std::max(elsewhere, std::min(missing_, Missing::text));
    for (const std::string_view prefix : {"subst:", "safesubst:", "msg:", "raw:"}) {
      if (ascii_lower(name).starts_with(prefix))
        name = std::string(trim(std::string_view(name).substr(prefix.size())));
    }
    std::string shown;
    if (parts.size() == 1 && magic_word(name, shown)) return shown;
    if (const size_t colon = name.find(':'); colon != std::string::npos) {
      const std::string function = ascii_lower(trim(std::string_view(name).substr(0, colon)));
      const std::string_view first = trim(std::string_view(name).substr(colon + 1));
      if (incomplete && (depends_on_every_part(function) || (function == "#if" && first.empty()))) {
        ++removed_;
        return {};
      }
      if (parser_function(function, first, parts, outer, depth, shown)) return shown;
    }
    const std::optional<std::string> body = store_.find(name);
    if (!body) return rebuilt(name, parts, outer, depth);
    read_ += body->size();
    const Arguments arguments = bind(parts, outer, depth);
    const int64_t outside = removed_;
    shown = text(*body, &arguments, depth);
    if (trim(shown).empty() && body->find("#invoke") != std::string::npos) {
      removed_ = outside;
      return rebuilt(name, parts, outer, depth);
    }
    return shown;
  }

  // A call without a definition, with its arguments expanded: common_template_text shows it or
  // strip_blocks removes it.
  std::string rebuilt(const std::string& name, const std::vector<std::string_view>& parts,
                      const Arguments* outer, int depth) {
    std::string inner = name;
    const Missing elsewhere = std::exchange(missing_, Missing::nothing);
    const int64_t before = removed_;
    bool gap = false;  // at the end of an argument: behind what is shown
    for (size_t i = 1; i < parts.size(); ++i) {
      const std::string argument = text(parts[i], outer, depth);
      inner.push_back('|');
      inner += argument.find('<') == argument.npos ? argument : without_dropped(argument);
      gap = take_gap(inner) || gap;
    }
    const Missing here = removed_ > before ? std::max(missing_, Missing::text) : Missing::nothing;
    std::string shown = common_template_text(inner, here);
    missing_ = std::max(elsewhere, std::min(here, Missing::text));
    if (shown.empty()) ++removed_;
    built_in_ = !shown.empty();
    if (built_in_ && gap) shown.push_back(kGap);
    return shown;
  }

  Arguments bind(const std::vector<std::string_view>& parts, const Arguments* outer, int depth) {
    Arguments arguments;
    int position = 0;
    for (size_t i = 1; i < parts.size(); ++i) {
      const size_t equals = own_equals(parts[i]);
      if (equals == std::string_view::npos) {
        arguments[std::to_string(++position)] = bound(parts[i], outer, depth);
      } else {
        Argument value = bound(parts[i].substr(equals + 1), outer, depth);
        value.text = std::string(trim(value.text));
        arguments[std::string(trim(text(parts[i].substr(0, equals), outer, depth)))] =
            std::move(value);
      }
    }
    return arguments;
  }

  // What an argument lacks is missing only where the template uses it.
  Argument bound(std::string_view source, const Arguments* outer, int depth) {
    const int64_t before = removed_;
    Argument made;
    made.text = text(source, outer, depth);
    made.incomplete = removed_ > before;
    removed_ = before;
    return made;
  }

  // The '=' that names an argument: outside of inner calls and links, before any tag.
  static size_t own_equals(std::string_view part) {
    int depth = 0;
    for (size_t i = 0; i < part.size() && part[i] != '<'; ++i) {
      const char c = part[i];
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
      if (c == '=' && depth <= 0) return i;
    }
    return std::string_view::npos;
  }

  bool magic_word(std::string_view name, std::string& shown) const {
    if (name == "PAGENAME" || name == "FULLPAGENAME" || name == "BASEPAGENAME" ||
        name == "SUBPAGENAME" || name == "ROOTPAGENAME") {
      shown = page_.title;
    } else if (name == "SITENAME") {
      shown = page_.site;
    } else if (name == "!") {
      shown = "|";
    } else if (name == "=") {
      shown = "=";
    } else if (name == "NAMESPACENUMBER") {
      shown = "0";
    } else {
      return name == "NAMESPACE" || name == "NAMESPACEE" || name == "SUBJECTSPACE";
    }
    return true;
  }

  bool parser_function(const std::string& function, std::string_view first,
                       const std::vector<std::string_view>& parts, const Arguments* outer,
                       int depth, std::string& shown) {
    const auto part = [&](size_t i) {
      return i < parts.size() ? std::string(trim(text(parts[i], outer, depth))) : std::string();
    };
    const int64_t before = removed_;
    if (function == "#if") {
      shown = part(first.empty() ? 2 : 1);
    } else if (function == "#ifeq") {
      const bool same = equal(first, part(1));
      if (removed_ == before) shown = part(same ? 2 : 3);
    } else if (function == "#ifexist") {
      shown = part(store_.has(first) ? 1 : 2);
    } else if (function == "#iferror") {
      const bool error = first.find("class=\"error\"") != std::string_view::npos;
      shown = error ? part(1) : parts.size() > 2 ? part(2) : std::string(first);
    } else if (function == "#expr" || function == "#ifexpr") {
      expression(function == "#expr", first, part, shown);
    } else if (function == "ns") {  // of articles: it has no name
      removed_ += first != "0" && !first.empty();
    } else if (function == "#switch") {
      shown = choose(first, parts, outer, depth);
    } else if (function == "lc") {
      shown = between_elements(first, lower_case);
    } else if (function == "uc") {
      shown = between_elements(first, upper_case);
    } else if (function == "ucfirst") {
      shown = upper_first(first);
    } else if (function == "lcfirst") {
      shown = lower_first(first);
    } else if (function == "formatnum") {
      const std::string how = part(1);
      shown = between_elements(first, [&](auto number) { return format_number(number, how); });
    } else if (function == "#tag") {
      shown = element(ascii_lower(first), part(1));
    } else if (function == "#titleparts") {
      const std::string count = part(1), begin = part(2);
      static const Site kNone;
      const Site& site = page_.namespaces == nullptr ? kNone : *page_.namespaces;
      if (removed_ == before) shown = title_parts(first, count, begin, site);
    } else if (function == "urlencode" || function == "anchorencode" || function == "#language") {
      shown = std::string(first);
    } else {
      const bool nothing =
          function == "defaultsort" || function == "displaytitle" || function == "#related";
      const bool unknown = function == "#invoke" || function == "#time" ||
                           function == "pagesincategory" || function == "fullurl" ||
                           function == "#property";
      removed_ += unknown;
      return nothing || unknown;
    }
    return true;
  }

  // {{#tag:ref|text}}: as if the tag stood there.
  static std::string element(const std::string& name, const std::string& content) {
    const ElementKind kind = element_kind(name);
    if (kind == ElementKind::other) return content;
    if (kind == ElementKind::dropped) return "<" + name + "/>";
    return "<" + name + ">" + content + "</" + name + ">";
  }

  template <class Part>
  static void expression(bool shows_value, std::string_view first, const Part& part,
                         std::string& shown) {
    try {
      const std::string value = evaluate_expression(first);
      shown = shows_value ? value : part(value.empty() || value == "0" || value == "-0" ? 2 : 1);
    } catch (const std::invalid_argument& error) {
      shown = kNoValue;
    }
  }

  // {{#switch: x | a | b = shown for a and b | #default = otherwise }}
  std::string choose(std::string_view subject, const std::vector<std::string_view>& parts,
                     const Arguments* outer, int depth) {
    bool matched = false;
    bool default_is_next = false;
    std::string_view otherwise;
    const int64_t before = removed_;
    for (size_t i = 1; i < parts.size(); ++i) {
      const size_t equals = own_equals(parts[i]);
      const std::string_view value =
          equals == std::string_view::npos ? std::string_view() : parts[i].substr(equals + 1);
      if (matched && equals != std::string_view::npos)
        return std::string(trim(text(value, outer, depth)));
      const std::string key(trim(text(parts[i].substr(0, equals), outer, depth)));
      if (equals == std::string_view::npos && i + 1 == parts.size()) return key;
      if (removed_ > before) return {};  // whether it is this key is not known
      matched = matched || equal(subject, key);
      default_is_next = default_is_next || key == "#default";
      if (equals == std::string_view::npos) continue;
      if (matched) return std::string(trim(text(value, outer, depth)));
      if (std::exchange(default_is_next, false)) otherwise = value;
    }
    return std::string(trim(text(otherwise, outer, depth)));
  }

  static bool equal(std::string_view a, std::string_view b) {
    if (a == b) return true;
    const auto number = [](std::string_view t, double& value) {
      if (t.find_first_not_of("0123456789+-.eE") != std::string_view::npos) return false;
      const std::string copy(t);
      char* end = nullptr;
      value = std::strtod(copy.c_str(), &end);
      return !copy.empty() && *end == 0;
    };
    double x = 0;
    double y = 0;
    return number(a, x) && number(b, y) && x == y;
  }

  const TemplateStore& store_;
  const PageNames& page_;
  const ExpansionLimits& limits_;
  size_t calls_ = 0;
  int64_t removed_ = 0;                 // calls without a definition that showed nothing
  Missing missing_ = Missing::nothing;  // for it, in the arguments of the call at hand
  bool built_in_ = false;               // the last call's text is that of common_templates.h
  size_t parts_ = 0;
  size_t read_ = 0;
  size_t made_ = 0;
};

}  // namespace

std::string expand_templates(std::string_view text, const TemplateStore& store,
                             const PageNames& page, const ExpansionLimits& limits) {
  if (text.find("{{") == std::string_view::npos) return std::string(text);
  return Expander(store, page, limits).text(without_comments(text), nullptr, 0);
}

}  // namespace wiki
