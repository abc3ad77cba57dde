// SPDX-License-Identifier: MIT
// Room: tools/cli. Makers of the usual fields from a pointer to member: switches, numbers, sizes,
// words, lists, flags without effect. Anything else is a Field written out with its own set and
// show.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/flags.h"
#include "tools/cli/text.h"

namespace cli {

/// Whole number, decimal. Errors: UsageError naming the range when `text` is not one in [lowest,
/// highest].
int64_t parse_integer(std::string_view text, int64_t lowest, int64_t highest);
/// Number of bytes: decimal with optional K, M, G or T (powers of 1024), range-checked; overflow is
/// an error.
int64_t parse_size(std::string_view text, int64_t lowest, int64_t highest);
/// Finite decimal number in [lowest, highest].
double parse_real(std::string_view text, double lowest, double highest);
/// "true"/"false" (also yes/no, on/off, 1/0, for configuration files).
bool parse_bool(std::string_view text);
/// `text` itself. Errors: UsageError listing `choices` when it is none of them.
const std::string& parse_choice(const std::string& text, const std::vector<std::string>& choices);
/// Errors: UsageError naming `choices` and `reason` when `text` is none of them.
void check_idle_choice(const std::string& text, const std::vector<std::string>& choices,
                       const std::string& reason);
/// The shortest text that parse_real reads back as the same number.
std::string show_real(double value);
/// The shortest text that parse_size reads back: 67108864 is 64M.
std::string show_size(int64_t bytes);

inline constexpr int64_t kMaxInteger = std::numeric_limits<int64_t>::max();

/// A switch that sets a bool to true (`off`: to false).
template <class O>
Field<O> on(bool O::*member) {
  return {Arity::none, [=](O& o, const Values& v) { o.*member = parse_bool(v[0]); },
          [=](const O& o) { return Values{o.*member ? "true" : "false"}; }};
}
template <class O>
Field<O> off(bool O::*member) {
  return {Arity::none, [=](O& o, const Values& v) { o.*member = !parse_bool(v[0]); },
          [=](const O& o) { return Values{o.*member ? "false" : "true"}; }};
}

/// A whole number in [lowest, highest]. A member below `lowest` (such as 0 where 1 is the lowest)
/// counts as not set, and is not shown.
template <class O>
Field<O> integer(int64_t O::*member, int64_t lowest = 0, int64_t highest = kMaxInteger) {
  return {Arity::one,
          [=](O& o, const Values& v) { o.*member = parse_integer(v[0], lowest, highest); },
          [=](const O& o) {
            return o.*member < lowest ? Values{} : Values{std::to_string(o.*member)};
          }};
}
/// The same, if absence has a meaning of its own.
template <class O>
Field<O> integer(std::optional<int64_t> O::*member, int64_t lowest = 0,
                 int64_t highest = kMaxInteger) {
  return {Arity::one,
          [=](O& o, const Values& v) { o.*member = parse_integer(v[0], lowest, highest); },
          [=](const O& o) { return o.*member ? Values{std::to_string(*(o.*member))} : Values{}; }};
}

/// The same where -1 says that nothing is given, as it does in Pai-Megatron-Patch.
template <class O>
Field<O> integer_or_none(std::optional<int64_t> O::*member, int64_t lowest, int64_t highest) {
  Field<O> field = integer(member, lowest, highest);
  field.set = [member, set = field.set](O& o, const Values& v) {
    if (v[0] == "-1") return (o.*member).reset();
    set(o, v);
  };
  return field;
}

/// A number of bytes with K, M, G or T.
template <class O>
Field<O> size(int64_t O::*member, int64_t lowest = 0, int64_t highest = kMaxInteger) {
  return {Arity::one, [=](O& o, const Values& v) { o.*member = parse_size(v[0], lowest, highest); },
          [=](const O& o) { return Values{show_size(o.*member)}; }};
}

/// A real number in [lowest, highest].
template <class O>
Field<O> real(double O::*member, double lowest = -std::numeric_limits<double>::max(),
              double highest = std::numeric_limits<double>::max()) {
  return {Arity::one, [=](O& o, const Values& v) { o.*member = parse_real(v[0], lowest, highest); },
          [=](const O& o) { return Values{show_real(o.*member)}; }};
}
template <class O>
Field<O> real(std::optional<double> O::*member, double lowest = -std::numeric_limits<double>::max(),
              double highest = std::numeric_limits<double>::max()) {
  return {Arity::one, [=](O& o, const Values& v) { o.*member = parse_real(v[0], lowest, highest); },
          [=](const O& o) { return o.*member ? Values{show_real(*(o.*member))} : Values{}; }};
}

/// Any text: a path, a name.
template <class O>
Field<O> text(std::string O::*member) {
  return {Arity::one, [=](O& o, const Values& v) { o.*member = v[0]; },
          [=](const O& o) { return (o.*member).empty() ? Values{} : Values{o.*member}; }};
}

/// Any text, of a flag whose second use would silently undo the first. `instead` says what to do.
template <class O>
Field<O> once(std::string O::*member, const char* instead) {
  Field<O> field = text(member);
  field.adds_up = true;
  field.set = [=](O& o, const Values& v) {
    if (v.size() > 1) throw UsageError(concat("given ", v.size(), " times: ", instead));
    o.*member = v[0];
  };
  return field;
}

/// One of the given words.
template <class O>
Field<O> choice(std::string O::*member, std::vector<std::string> choices) {
  return {Arity::one, [=](O& o, const Values& v) { o.*member = parse_choice(v[0], choices); },
          [=](const O& o) { return (o.*member).empty() ? Values{} : Values{o.*member}; }, choices};
}

/// Several texts: `--json-keys a b c`; a flag given twice adds up; the first use replaces the
/// default.
template <class O>
Field<O> list(std::vector<std::string> O::*member) {
  return {Arity::many, [=](O& o, const Values& v) { o.*member = v; },
          [=](const O& o) { return Values{o.*member}; }};
}

/// Several texts, one a use: `-c text -c id`.
template <class O>
Field<O> repeated(std::vector<std::string> O::*member) {
  Field<O> field = list(member);
  field.arity = Arity::one;
  field.adds_up = true;
  return field;
}

/// The same as list() where the last use counts, as it does in Megatron: a script's caller may
/// append its own `--data-path`.
template <class O>
Field<O> last_list(std::vector<std::string> O::*member) {
  Field<O> field = list(member);
  field.last_counts = true;
  return field;
}

/// A flag that is accepted so that known command lines work, but changes nothing: its use is
/// mentioned once, with `reason`.
template <class O>
Field<O> no_effect(Arity arity, std::string reason) {
  return {arity, [](O&, const Values&) {}, nullptr, {}, std::move(reason)};
}

/// The same for a flag with one value, of which only `choices` change nothing; any other is an
/// error.
template <class O>
Field<O> no_effect_with(std::vector<std::string> choices, std::string reason) {
  return {Arity::one,
          [choices, reason](O&, const Values& v) { check_idle_choice(v[0], choices, reason); },
          nullptr, choices, std::move(reason)};
}

/// A flag of other programs that cannot be honoured: using it is an error that gives `reason`.
template <class O>
Field<O> refused(Arity arity, std::string reason) {
  const std::string error = "cannot be honoured here: " + reason;
  Field<O> field(
      arity, [error](O&, const Values&) { throw UsageError(error); }, nullptr);
  field.refused = std::move(reason);
  return field;
}

}  // namespace cli
