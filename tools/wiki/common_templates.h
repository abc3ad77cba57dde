// SPDX-License-Identifier: MIT
// The text of templates inside sentences, for dumps without their definitions:
// {{lang|grc|anarchia}} shows anarchia, {{val|1.5|e=3|u=km}} shows 1.5×10^3 km. Everything else
// shows nothing. A template that shows a number shows the whole of it or nothing: a call with
// unknown arguments is dropped. Here: parsing of calls, and the entry point. numbers.cc, dates.cc
// and measures.cc compute texts.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace wiki {

/// What the arguments of a call lack, because an inner template showed nothing: nothing, some text,
/// or a part of a number, since the inner one touches a digit and is no note.
enum class Missing { nothing, text, part_of_number };

/// Text of a template call, given what stands between its braces ("convert|5|km"), in which inner
/// templates have been replaced already; empty where the template is none of the known ones. It is
/// wikitext still: <sup> and <sub> in it are for strip_inline.
/// Where something is missing, a template that shows numbers shows nothing too; where a part of a
/// number is, no template shows anything.
std::string common_template_text(std::string_view call, Missing missing = Missing::nothing);

/// What is missing between `before` and `after` where a call shows nothing there.
Missing missing_between(std::string_view call, std::string_view before, std::string_view after);

/// For a call that shows nothing: removes the number at the end of `before` if the call continues
/// it, as in 1.5{{e|6}} and 10<sup>{{x}}</sup>: its first part alone would be another number.
/// `after`: the text after the call.
void drop_cut_number(std::string_view call, std::string_view after, std::string& before);

/// A parsed call. All members are trimmed parts of the page.
struct TemplateCall {
  std::string_view arguments;            ///< all of them, as written
  std::vector<std::string_view> values;  ///< {{x|a|2=b}}: a, b
  std::vector<std::pair<std::string_view, std::string_view>> named;
  bool whole = true;  ///< false: there are more values than were kept

  /// Value `i`, from 1; empty if there is none.
  std::string_view at(size_t i) const {
    return i >= 1 && i <= values.size() ? values[i - 1] : std::string_view();
  }
  /// Value of the argument `name`, empty if there is none; if several are given, the first that is
  /// set.
  std::string_view get(std::string_view name) const;
  std::string_view first_of(std::initializer_list<std::string_view> names) const;
  /// Whether no named argument is set but those of `names`, and at most `most` values are.
  bool only(size_t most, std::initializer_list<std::string_view> names) const;
};

/// Shows a call; empty: nothing.
using TemplateText = std::string (*)(const TemplateCall& call);

/// Templates whose text is computed; names in lower case.
struct ComputedTemplate {
  std::string_view name;
  TemplateText text;
};
std::span<const ComputedTemplate> number_templates();
std::span<const ComputedTemplate> date_templates();

/// The sign before the amount of {{US$|5}}; names in lower case.
struct MoneyTemplate {
  std::string_view name, sign;
};
std::span<const MoneyTemplate> money_templates();

/// {{US$|5}}, {{US$|5|million}}, {{US$|5|2010}}: the sign, the amount and its multiplier; empty if
/// there is no amount or an argument is unknown.
std::string money_text(std::string_view sign, const TemplateCall& call);

/// The measure that {{convert}} shows first; empty if a number in it cannot be parsed.
/// `values`: its positional `arguments`.
std::string converted(std::string_view arguments, const std::vector<std::string_view>& values);

/// 1234567.5 as 1,234,567.5; anything but plain digits is unchanged. A leading hyphen becomes a
/// minus.
std::string with_commas(std::string_view number);

/// {{formatnum:number|how}}: with commas between groups of three digits; with R, as a number that
/// programs read, without them; with NOSEP, as it is written. Anything that is no number stays as
/// it is.
std::string format_number(std::string_view number, std::string_view how);

/// Whether `text` has only digits, and at least one.
bool is_digits(std::string_view text);

}  // namespace wiki
