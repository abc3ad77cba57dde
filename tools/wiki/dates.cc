// SPDX-License-Identifier: MIT
// Templates of common_templates.h that show dates, years and ages. An age up to the present is not
// shown, so that the same dump always gives the same bytes; an age between two dates is.
// Source: the English Wikipedia's documentation of each template.

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "tools/wiki/common_templates.h"
#include "tools/wiki/wikitext.h"

namespace wiki {
namespace {

constexpr std::array<std::string_view, 12> kMonths = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};

// A year, a year and month, or a full date; zero: not given.
struct Date {
  int year = 0, month = 0, day = 0;
};

std::optional<int> to_number(std::string_view digits) {
  int number = 0;
  if (!is_digits(digits) || digits.size() > 6) return std::nullopt;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

std::optional<int> to_month(std::string_view text) {
  if (const std::optional<int> number = to_number(text))
    return *number >= 1 && *number <= 12 ? number : std::nullopt;
  const std::string lower = ascii_lower(text);
  for (size_t i = 0; i < kMonths.size(); ++i) {
    const std::string month = ascii_lower(kMonths[i]);
    if (lower == month || (lower.size() == 3 && month.starts_with(lower)))
      return static_cast<int>(i) + 1;
  }
  return std::nullopt;
}

// Values `first` to `first` + 2: year, month, day. None if these are not a date.
std::optional<Date> to_date(const TemplateCall& call, size_t first) {
  const std::string_view month = call.at(first + 1), day = call.at(first + 2);
  Date date;
  const std::optional<int> year = to_number(call.at(first));
  if (!year || (month.empty() && !day.empty())) return std::nullopt;
  date.year = *year;
  if (month.empty()) return date;
  const std::optional<int> number = to_month(month);
  if (!number) return std::nullopt;
  date.month = *number;
  if (day.empty()) return date;
  const std::optional<int> of_month = to_number(day);
  if (!of_month || *of_month < 1 || *of_month > 31) return std::nullopt;
  date.day = *of_month;
  return date;
}

// "2 January 1950" or "January 2, 1950".
std::optional<Date> parse_date(std::string_view text) {
  std::array<std::string_view, 3> words;
  size_t count = 0;
  while (!(text = trim(text)).empty()) {
    const size_t end = std::min(text.find_first_of(" ,"), text.size());
    if (end > 0) {
      if (count == words.size()) return std::nullopt;
      words[count++] = text.substr(0, end);
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (count != words.size()) return std::nullopt;
  const bool day_first = to_number(words[0]).has_value();
  const std::optional<int> day = to_number(words[day_first ? 0 : 1]);
  const std::optional<int> month = to_month(words[day_first ? 1 : 0]);
  const std::optional<int> year = to_number(words[2]);
  if (!day || !month || !year) return std::nullopt;
  return Date{*year, *month, *day};
}

std::string shown_date(const Date& date, bool day_first) {
  const std::string year = std::to_string(date.year);
  if (date.month == 0) return year;
  const std::string month(kMonths[static_cast<size_t>(date.month) - 1]);
  if (date.day == 0) return month + " " + year;
  const std::string day = std::to_string(date.day);
  return day_first ? day + " " + month + " " + year : month + " " + day + ", " + year;
}

bool is_yes(std::string_view text) {
  return !text.empty() && text != "n" && text != "no" && text != "0" && text != "us" &&
         text != "US" && text != "mdy" && text != "MDY";
}
bool day_first(const TemplateCall& call) { return is_yes(call.get("df")); }

// 49, or 49–50 if a month or a day is missing.
std::string age(const Date& from, const Date& to) {
  const int years = to.year - from.year;
  const bool months = from.month != 0 && to.month != 0 && from.month != to.month;
  const bool days = from.day != 0 && to.day != 0 && from.month == to.month && from.month != 0;
  if (months) return std::to_string(years - (to.month < from.month ? 1 : 0));
  if (days) return std::to_string(years - (to.day < from.day ? 1 : 0));
  return std::to_string(years - 1) + "–" + std::to_string(years);
}

// {{birth date and age|1950|1|2|df=y}}, {{start date|1990|5}}
std::string one_date(const TemplateCall& call) {
  const std::optional<Date> date = to_date(call, 1);
  if (!date || !call.only(3, {"df", "mf", "p", "paren", "br", "tz"})) return {};
  return shown_date(*date, day_first(call));
}

std::string death_and_age(const TemplateCall& call) {
  const std::optional<Date> death = to_date(call, 1), birth = to_date(call, 4);
  if (!death || !birth || !call.only(6, {"df", "mf"})) return {};
  return shown_date(*death, day_first(call)) + " (aged " + age(*birth, *death) + ")";
}

// {{death year and age|2000|1950|5}}: the third value is the month of the death.
std::string death_year(const TemplateCall& call) {
  const std::optional<int> death = to_number(call.at(1)), birth = to_number(call.at(2));
  const std::optional<int> month = to_month(call.at(3));
  if (!death || !birth || !call.only(3, {}) || (!call.at(3).empty() && !month)) return {};
  const Date date{*death, month.value_or(0), 0};
  return shown_date(date, false) + " (aged " + age({*birth, 0, 0}, date) + ")";
}

std::string birth_year(const TemplateCall& call) {
  const std::optional<Date> date = to_date(call, 1);
  return date && call.only(2, {}) ? shown_date(*date, false) : std::string();
}

// {{birth-date and age|2 January 1950}}: the text unchanged.
std::string as_written(const TemplateCall& call) { return std::string(call.at(1)); }

std::string death_text_and_age(const TemplateCall& call) {
  const std::optional<Date> death = parse_date(call.at(1)), birth = parse_date(call.at(2));
  if (!death || !birth || !call.only(2, {})) return {};
  return std::string(call.at(1)) + " (aged " + age(*birth, *death) + ")";
}

// {{age|1950|1|2|2000|3|4}} is a number; with one date it depends on the present day.
std::string age_between(const TemplateCall& call) {
  const std::optional<Date> from = to_date(call, 1), to = to_date(call, 4);
  if (!from || !to || !call.only(6, {})) return {};
  return age(*from, *to);
}

std::string sortable_date(const TemplateCall& call) {
  if (!call.only(3, {"format", "link", "abbr", "addkey"}) || !call.get("abbr").empty()) return {};
  const bool day_before_month = call.get("format") == "dmy";
  if (call.values.size() > 1) {
    const std::optional<Date> date = to_date(call, 1);
    return date ? shown_date(*date, day_before_month) : std::string();
  }
  return std::string(call.at(1));
}

// {{as of|2010|5|6|lc=y}}
std::string as_of(const TemplateCall& call) {
  if (!call.get("alt").empty()) return std::string(call.get("alt"));
  const bool known = call.only(
      3, {"lc", "df", "since", "bare", "pre", "post", "url", "alt", "about", "now", "type"});
  std::string text(call.at(1));
  if (!known || text.empty() || !call.get("now").empty()) return {};
  if (const std::optional<Date> date = to_date(call, 1)) {
    text = shown_date(*date, call.get("df") != "US" && call.get("df") != "us");
  } else if (call.values.size() > 1) {
    return {};
  }
  if (!call.get("pre").empty()) text = std::string(call.get("pre")) + " " + text;
  text += call.get("post");
  if (is_yes(call.get("bare"))) return text;
  const bool since = is_yes(call.get("since")), small = is_yes(call.get("lc"));
  return (since ? (small ? "since " : "Since ") : (small ? "as of " : "As of ")) + text;
}

std::string circa(const TemplateCall& call) {
  if (!call.only(2, {"lk", "sortable"})) return {};
  std::string text = "c. " + std::string(call.at(1));  // {{circa}} 1500
  if (!call.at(2).empty()) text.append(" – c. ").append(call.at(2));
  return text;
}

template <const char* kBefore>
std::string span(const TemplateCall& call) {
  if (!call.only(2, {"lk", "single", "cite", "show-word", "era"})) return {};
  std::string text = std::string(kBefore) + std::string(call.at(1));
  if (!call.at(2).empty()) text.append("–").append(call.at(2));
  if (!call.get("era").empty()) text.append(" ").append(call.get("era"));
  return text;
}
constexpr char kFlourished[] = "fl. ", kReigned[] = "r. ";

// {{OldStyleDate|23 April|1564|13 April}} and {{OldStyleDateDY|1 January|1700|21 December 1699}}
std::string old_style(const TemplateCall& call) {
  if (!call.only(3, {}) || call.values.size() != 3) return {};
  return std::string(call.at(1)) + " [O.S. " + std::string(call.at(3)) + "] " +
         std::string(call.at(2));
}
std::string old_style_years(const TemplateCall& call) {
  if (!call.only(3, {}) || call.values.size() != 3) return {};
  return std::string(call.at(1)) + " " + std::string(call.at(2)) + " [O.S. " +
         std::string(call.at(3)) + "]";
}

constexpr std::array<ComputedTemplate, 38> kRows = {{
    {"age", age_between},
    {"age in years", age_between},
    {"as of", as_of},
    {"asof", as_of},
    {"bda", one_date},
    {"birth date", one_date},
    {"birth date and age", one_date},
    {"birth year", birth_year},
    {"birth year and age", birth_year},
    {"birth-date", as_written},
    {"birth-date and age", as_written},
    {"birthdate", one_date},
    {"birthdate and age", one_date},
    {"c.", circa},
    {"ca.", circa},
    {"circa", circa},
    {"dda", death_and_age},
    {"death date", one_date},
    {"death date and age", death_and_age},
    {"death year and age", death_year},
    {"death-date", as_written},
    {"death-date and age", death_text_and_age},
    {"dob", one_date},
    {"dts", sortable_date},
    {"dya", death_year},
    {"end date", one_date},
    {"film date", one_date},
    {"fl.", span<kFlourished>},
    {"floruit", span<kFlourished>},
    {"oldstyledate", old_style},
    {"oldstyledatedy", old_style_years},
    {"r.", span<kReigned>},
    {"reign", span<kReigned>},
    {"release date", one_date},
    {"start date", one_date},
    {"start date and age", one_date},
    {"start-date", as_written},
    {"start-date and age", as_written},
}};

}  // namespace

std::span<const ComputedTemplate> date_templates() { return kRows; }

}  // namespace wiki
