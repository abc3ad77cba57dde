// SPDX-License-Identifier: MIT
// {{convert}} of common_templates.h: the first measure as a reader sees it ("5 miles", "2 to 3
// °C"), without its conversion into other units. Unknown units are shown as written. Source: the
// English Wikipedia's documentation of Template:Convert.

#include <algorithm>
#include <array>

#include "tools/wiki/common_templates.h"
#include "tools/wiki/wikitext.h"

namespace wiki {
namespace {

struct Unit {
  std::string_view code;
  std::string_view one;  // empty: running text uses the symbol too
  std::string_view many;
  std::string_view symbol;
};
constexpr std::array<Unit, 66> kUnits = {{
    {"mi", "mile", "miles", "mi"},
    {"km", "kilometre", "kilometres", "km"},
    {"m", "metre", "metres", "m"},
    {"cm", "centimetre", "centimetres", "cm"},
    {"mm", "millimetre", "millimetres", "mm"},
    {"um", "micrometre", "micrometres", "μm"},
    {"nm", "nanometre", "nanometres", "nm"},
    {"ft", "foot", "feet", "ft"},
    {"foot", "foot", "feet", "ft"},
    {"in", "inch", "inches", "in"},
    {"yd", "yard", "yards", "yd"},
    {"nmi", "nautical mile", "nautical miles", "nmi"},
    {"AU", "astronomical unit", "astronomical units", "au"},
    {"ly", "light-year", "light-years", "ly"},
    {"pc", "parsec", "parsecs", "pc"},
    {"acre", "acre", "acres", "acre"},
    {"ha", "hectare", "hectares", "ha"},
    {"sqmi", "square mile", "square miles", "sq mi"},
    {"mi2", "square mile", "square miles", "sq mi"},
    {"sqkm", "square kilometre", "square kilometres", "km^2"},
    {"km2", "square kilometre", "square kilometres", "km^2"},
    {"m2", "square metre", "square metres", "m^2"},
    {"cm2", "square centimetre", "square centimetres", "cm^2"},
    {"sqft", "square foot", "square feet", "sq ft"},
    {"ft2", "square foot", "square feet", "sq ft"},
    {"sqyd", "square yard", "square yards", "sq yd"},
    {"cuft", "cubic foot", "cubic feet", "cu ft"},
    {"cuyd", "cubic yard", "cubic yards", "cu yd"},
    {"cumi", "cubic mile", "cubic miles", "cu mi"},
    {"m3", "cubic metre", "cubic metres", "m^3"},
    {"km3", "cubic kilometre", "cubic kilometres", "km^3"},
    {"L", "litre", "litres", "L"},
    {"l", "litre", "litres", "l"},
    {"ml", "millilitre", "millilitres", "ml"},
    {"gal", "gallon", "gallons", "gal"},
    {"USgal", "US gallon", "US gallons", "US gal"},
    {"usgal", "US gallon", "US gallons", "US gal"},
    {"impgal", "imperial gallon", "imperial gallons", "imp gal"},
    {"bbl", "barrel", "barrels", "bbl"},
    {"oilbbl", "barrel", "barrels", "bbl"},
    {"lb", "pound", "pounds", "lb"},
    {"oz", "ounce", "ounces", "oz"},
    {"st", "stone", "stone", "st"},
    {"kg", "kilogram", "kilograms", "kg"},
    {"g", "gram", "grams", "g"},
    {"mg", "milligram", "milligrams", "mg"},
    {"t", "tonne", "tonnes", "t"},
    {"MT", "metric ton", "metric tons", "t"},
    {"LT", "long ton", "long tons", "long tons"},
    {"ST", "short ton", "short tons", "short tons"},
    {"mph", "mile per hour", "miles per hour", "mph"},
    {"km/h", "kilometre per hour", "kilometres per hour", "km/h"},
    {"kn", "knot", "knots", "kn"},
    {"hp", "horsepower", "horsepower", "hp"},
    {"kW", "kilowatt", "kilowatts", "kW"},
    {"MW", "megawatt", "megawatts", "MW"},
    {"W", "watt", "watts", "W"},
    {"carat", "carat", "carats", "carat"},
    {"PD", "inhabitant", "inhabitants", "inhabitants"},
    {"F", "", "", "°F"},
    {"C", "", "", "°C"},
    {"K", "", "", "K"},
    {"°F", "", "", "°F"},
    {"°C", "", "", "°C"},
    {"F-change", "", "", "°F"},
    {"C-change", "", "", "°C"},
}};
struct Words {
  std::string_view code, words;
};
constexpr std::array<Words, 4> kPowers = {
    {{"e3", "thousand "}, {"e6", "million "}, {"e9", "billion "}, {"e12", "trillion "}}};
// These prefixes apply to a few units only: Mm is not a million metres.
constexpr std::array<Words, 4> kLetters = {
    {{"k", "thousand "}, {"M", "million "}, {"G", "billion "}, {"T", "trillion "}}};
constexpr std::array<std::string_view, 4> kLettered = {"oilbbl", "bbl", "cuft", "USgal"};
constexpr std::array<Words, 5> kRates = {{{"/d", " per day"},
                                          {"/s", " per second"},
                                          {"/h", " per hour"},
                                          {"/sqmi", " per square mile"},
                                          {"/km2", " per square kilometre"}}};
constexpr std::array<Words, 32> kBetween = {{{"to", " to "},
                                             {"to(-)", " to "},
                                             {"to about", " to about "},
                                             {"and", " and "},
                                             {"and(-)", " and "},
                                             {"or", " or "},
                                             {"or(-)", " or "},
                                             {"by", " by "},
                                             {"by(-)", " by "},
                                             {"x", " × "},
                                             {"xx", " × "},
                                             {"*", " × "},
                                             {"×", " × "},
                                             {"-", "–"},
                                             {"–", "–"},
                                             {"+", " + "},
                                             {"+/-", " ± "},
                                             {"±", " ± "},
                                             {",", ", "},
                                             {"to(-)-", " to "},
                                             {", and", ", and "},
                                             {", or", ", or "},
                                             {"and/or", " and/or "},
                                             {"(-)", "–"},
                                             {"to-", " to "},
                                             {"by(x)", " by "},
                                             {"x(by)", " × "},
                                             {"through", " through "},
                                             {"~", " to "},
                                             {"/", "/"},
                                             {"plus", " plus "},
                                             {"minus", " minus "}}};

const Unit* unit_of(std::string_view code) {
  const auto* found =
      std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& u) { return u.code == code; });
  return found == kUnits.end() ? nullptr : found;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_of("0123456789") != std::string_view::npos &&
         text.find_first_not_of("0123456789.,+-/ ") == std::string_view::npos;
}

// 5+1/2 is 5 1/2; 1//2 is 1/2 in another style.
std::string shown_number(std::string_view written) {
  std::string number(written);
  if (const size_t strokes = number.find("//"); strokes != number.npos) number.erase(strokes, 1);
  const size_t plus = number.find('+');
  if (plus != number.npos && plus > 0 && number.find('/') != number.npos)
    return with_commas(number.substr(0, plus)) + " " + number.substr(plus + 1);
  return with_commas(number);
}

// Whether there is a digit, or a character such as ½.
bool may_be_number(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || static_cast<signed char>(c) < 0;
  });
}

// Whether a unit directly follows a number: 5ft6in, 10e3km; but not 1.5e3.
bool holds_unit(std::string_view text) {
  const auto digit = [&](size_t i) { return i < text.size() && is_digits(text.substr(i, 1)); };
  const auto letter = [&](size_t i) {
    return i < text.size() && (text[i] | 0x20) >= 'a' && (text[i] | 0x20) <= 'z';
  };
  for (size_t i = 1; i < text.size(); ++i) {
    if (!digit(i - 1) || !letter(i)) continue;
    const std::string_view sign = text.substr(i + 1, 1);
    const bool exponent =
        (text[i] | 0x20) == 'e' &&
        is_digits(text.substr(i + 1 + (sign == "-" || sign == "+" ? sign.size() : 0)));
    if (!exponent) return true;
  }
  return false;
}

// A fraction of one: half a mile.
bool is_fraction(std::string_view number) {
  return number.find('/') != number.npos && number.find_first_of("+ ") == number.npos;
}

enum class Form { words, symbols, adjective };

// Removes a code of `rows` from the front of `code` and returns its words.
template <size_t N>
std::string_view take_front(const std::array<Words, N>& rows, std::string_view& code) {
  for (const Words& row : rows) {
    if (!code.starts_with(row.code) || code.size() == row.code.size()) continue;
    code.remove_prefix(row.code.size());
    return row.words;
  }
  return {};
}

// The unit after its number, with the separator.
std::string shown_unit(std::string_view code, std::string_view number, Form form) {
  const std::string as_written = " " + std::string(code);
  std::string_view left = code;
  Words rate = {};
  std::string_view multiple;
  const Unit* unit = unit_of(left);
  for (const Words& row : kRates) {
    if (unit != nullptr || !left.ends_with(row.code)) continue;
    rate = row;
    left.remove_suffix(row.code.size());
    break;
  }
  if (unit == nullptr) {
    multiple = take_front(kPowers, left);
    const std::string_view behind = left.substr(std::min<size_t>(1, left.size()));
    if (std::find(kLettered.begin(), kLettered.end(), behind) != kLettered.end())
      multiple = take_front(kLetters, left);
    unit = unit_of(left);
  }
  if (unit == nullptr) return as_written;
  const bool symbol = form == Form::symbols || unit->one.empty();
  const bool one =
      form == Form::adjective || (multiple.empty() && (number == "1" || is_fraction(number)));
  std::string out = form == Form::adjective && !symbol ? "-" : " ";
  out.append(multiple).append(symbol ? unit->symbol : one ? unit->one : unit->many);
  return out.append(!symbol ? rate.words : rate.code == "/km2" ? "/km^2" : rate.code);
}

bool has_argument(std::string_view arguments, std::string_view name, std::string_view value) {
  for (size_t at = arguments.find(name); at != std::string_view::npos;
       at = arguments.find(name, at + 1)) {
    const std::string_view rest = trim(arguments.substr(at + name.size()));
    if (rest.starts_with('=') && trim(rest.substr(1)).starts_with(value)) return true;
  }
  return false;
}

}  // namespace

std::string converted(std::string_view arguments, const std::vector<std::string_view>& values) {
  const bool adjective = has_argument(arguments, "adj", "on") ||
                         has_argument(arguments, "adj", "mid") ||
                         has_argument(arguments, "adj", "1");
  const Form form = has_argument(arguments, "abbr", "on") || has_argument(arguments, "abbr", "in")
                        ? Form::symbols
                    : adjective ? Form::adjective
                                : Form::words;
  std::string text;
  for (size_t i = 0; i < values.size(); i += 2) {
    if (!may_be_number(values[i]) || holds_unit(values[i])) return {};
    text += shown_number(values[i]);
    if (i + 1 == values.size()) break;
    const auto* between = std::find_if(kBetween.begin(), kBetween.end(),
                                       [&](const Words& w) { return w.code == values[i + 1]; });
    if (between != kBetween.end() && i + 2 < values.size()) {
      text += between->words;
      continue;
    }
    // An unknown word between two numbers is shown unchanged: neither number is lost.
    const bool range = i + 3 < values.size() && is_number(values[i + 2]) &&
                       !is_number(values[i + 3]) && unit_of(values[i + 1]) == nullptr &&
                       values[i + 1].find('/') == std::string_view::npos;
    if (range) {
      text.append(" ").append(values[i + 1]).append(" ");
      continue;
    }
    text += shown_unit(values[i + 1], values[i], form);
    // 6 ft 2 in, whatever the units; a single number after the unit says how to round.
    const bool compound = i + 3 < values.size() && is_number(values[i + 2]) &&
                          !values[i + 3].empty() && !is_number(values[i + 3]);
    if (!compound) break;
    text += " ";
  }
  return text;
}

}  // namespace wiki
