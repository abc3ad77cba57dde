// SPDX-License-Identifier: MIT
// Templates of common_templates.h that show numbers: measured values, fractions, powers, roots,
// formulas of chemistry, money. Each implements all arguments that change its text; a call with
// others shows nothing, so that no number is cut. Dates are in dates.cc, measures in measures.cc.
// Source: the English Wikipedia's documentation of each template.

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>

#include "tools/wiki/common_templates.h"
#include "tools/wiki/wikitext.h"

namespace wiki {
namespace {

constexpr std::string_view kMinus = "−";
constexpr std::string_view kDigits = "0123456789";

bool has_digit(std::string_view text) { return text.find_first_of(kDigits) != text.npos; }

// The number without its sign.
std::string_view unsigned_part(std::string_view number) {
  if (number.starts_with('-') || number.starts_with('+')) return trim(number.substr(1));
  for (const std::string_view sign : {kMinus, std::string_view("&minus;")}) {
    if (number.starts_with(sign)) return trim(number.substr(sign.size()));
  }
  return number;
}

// A hyphen before the digits is a minus.
std::string signed_number(std::string_view number) {
  const bool hyphen = number.size() > 1 && number[0] == '-' && is_digits(number.substr(1, 1));
  return hyphen ? std::string(kMinus).append(number.substr(1)) : std::string(number);
}

// ×10^6
std::string power_of_ten(std::string_view exponent, std::string_view base = "10") {
  return std::string("×").append(base).append("^").append(signed_number(exponent));
}

// Whether text is a single number or symbol that needs no brackets after a stroke or a root: 12,
// 1.5, x, ''x'', π.
bool is_atom(std::string_view text) {
  while (text.starts_with('\'') && text.ends_with('\'') && text.size() > 2)
    text = text.substr(1, text.size() - 2);
  if (text.find_first_not_of("0123456789.,") == text.npos) return true;
  return std::none_of(text.begin(), text.end(), [](char c) {
    return static_cast<signed char>(c) > 0 && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z');
  });
}

std::string in_brackets(std::string_view text) {
  return is_atom(text) ? std::string(text) : "(" + std::string(text) + ")";
}

// strip_inline shows it as 1/2, after a digit with a space before it.
std::string fraction(std::string_view above, std::string_view below) {
  const bool sum = above.find_first_of("+- /*") != above.npos || above.find(kMinus) != above.npos;
  return "<sup>" + (sum ? in_brackets(above) : std::string(above)) + "</sup>/<sub>" +
         in_brackets(below) + "</sub>";
}

std::string frac(const TemplateCall& call) {
  const bool gap = std::any_of(call.values.begin(), call.values.end(),
                               [](std::string_view value) { return value.empty(); });
  if (!call.only(3, {}) || call.values.empty() || gap) return {};
  if (call.values.size() == 1) return fraction("1", call.at(1));
  if (call.values.size() == 2) return fraction(call.at(1), call.at(2));
  return std::string(call.at(1)) + " " + fraction(call.at(2), call.at(3));
}

// {{1/2}}, {{half}}: the name gives the fraction.
template <char kAbove, char kBelow>
std::string fixed_fraction(const TemplateCall&) {
  return fraction(std::string(1, kAbove), std::string(1, kBelow));
}

std::string root(const TemplateCall& call) {
  if (!call.only(2, {}) || call.at(1).empty()) return {};
  const std::string_view index = call.at(2);
  if (index.empty() || index == "2") return "√" + in_brackets(call.at(1));
  if (index == "3") return "∛" + in_brackets(call.at(1));
  if (index == "4") return "∜" + in_brackets(call.at(1));
  return in_brackets(call.at(1)) + "^(1/" + in_brackets(index) + ")";
}

// A unit's code, in which a digit after a letter is an exponent: m/s2 is m/s^2.
std::string unit_text(std::string_view code) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kNamed = {{{"deg", "°"},
                                                                                    {"degC", "°C"},
                                                                                    {"degF", "°F"},
                                                                                    {"ohm", "Ω"},
                                                                                    {"um", "μm"},
                                                                                    {"us", "μs"},
                                                                                    {"ug", "μg"},
                                                                                    {"uK", "μK"},
                                                                                    {"uL", "μL"}}};
  for (const auto& [name, shown] : kNamed) {
    if (code == name) return std::string(shown);
  }
  if (code.find_first_of("<[{&") != code.npos) return std::string(code);
  const auto letter = [&](size_t i) {
    return i < code.size() && ((code[i] | 0x20) >= 'a' && (code[i] | 0x20) <= 'z');
  };
  std::string out;
  for (size_t i = 0; i < code.size(); ++i) {
    const size_t sign = code[i] == '-' || code.substr(i).starts_with(kMinus) ? 1 : 0;
    const size_t digits = sign == 0 ? i : i + (code[i] == '-' ? 1 : kMinus.size());
    const bool digit = digits < code.size() && is_digits(code.substr(digits, 1));
    if (i > 0 && letter(i - 1) && digit) {
      out += sign == 0 ? "^" : "^−";
      i = digits;
    }
    out.push_back(code[i]);
  }
  return out;
}

// The unit of {{val}} and {{gaps}} with the space before it.
std::string spaced_unit(std::string_view unit, std::string_view per) {
  if (unit.empty()) return {};
  std::string text = unit_text(unit);
  if (!per.empty()) text += "/" + unit_text(per);
  const bool tight = text == "%" || text == "°" || text.starts_with("′") || text.starts_with("″");
  return tight ? text : " " + text;
}

// One number of {{val}}, which may have its own exponent: 1.5e3.
struct Number {
  std::string digits;
  std::string exponent;  // of ten; empty: none
};

Number parse_number(std::string_view text, bool commas) {
  Number number;
  const size_t e = text.find_first_of("eE");
  if (e != text.npos && e > 0 && is_digits(unsigned_part(text.substr(e + 1)))) {
    number.exponent = text.substr(e + 1);
    text = text.substr(0, e);
  }
  number.digits = commas ? with_commas(text) : signed_number(text);
  return number;
}

// {{val|1.2|(3)|e=4|u=m}} is 1.2(3)×10^4 m; {{val|1.2|0.3}} 1.2±0.3; {{val|1.2|+0.3|-0.4}}
// 1.2 +0.3/−0.4; {{val|2|to|3|u=m}} 2 to 3 m.
class Value {
 public:
  explicit Value(const TemplateCall& call) : call_(call), commas_(call.get("fmt") == "commas") {}

  std::string text() {
    const bool known =
        call_.only(9, {"e", "u", "ul", "up", "upl", "p", "s", "fmt", "end", "errend", "+errend",
                       "-errend", "sortable", "long scale", "debug", "commas", "nocategory"});
    if (!known || !(has_digit(call_.at(1)) || (call_.values.empty() && exponent_given())))
      return {};
    const std::string unit =
        spaced_unit(call_.first_of({"u", "ul"}), call_.first_of({"up", "upl"}));
    if (unit.empty() && !call_.first_of({"up", "upl"}).empty()) return {};
    const std::string shown = call_.values.empty() ? power_of_ten(call_.get("e")).substr(kTimes)
                              : is_series()        ? series()
                                                   : single();
    if (shown.empty()) return {};
    return std::string(call_.get("p")) + shown + std::string(call_.get("s")) + unit;
  }

 private:
  static constexpr size_t kTimes = std::string_view("×").size();

  bool exponent_given() const { return !call_.get("e").empty(); }

  // A word between numbers: 2 to 3, 4 × 5.
  bool is_series() const {
    return call_.values.size() >= 3 && !call_.at(2).empty() && !has_digit(call_.at(2));
  }

  std::string power(const Number& number) const {
    const std::string_view exponent = exponent_given() ? call_.get("e") : number.exponent;
    return exponent.empty() ? std::string() : power_of_ten(exponent);
  }

  // The word between two numbers, with its spaces.
  static std::string joined(std::string_view word) {
    if (word == "-" || word == "–") return "–";
    if (word == "/") return "/";
    if (word == ",") return ", ";
    if (word == "x" || word == "*") return " × ";
    return " " + std::string(word) + " ";
  }

  std::string series() const {
    std::string out;
    if (call_.values.size() % 2 == 0) return out;
    for (size_t i = 1; i <= call_.values.size(); i += 2) {
      if (!has_digit(call_.at(i)) || (i > 1 && call_.at(i - 1).empty())) return {};
      if (i > 1) out += joined(call_.at(i - 1));
      const Number number = parse_number(call_.at(i), commas_);
      out += number.digits + power(number);
    }
    return out;
  }

  std::string single() const {
    if (call_.values.size() > 3) return {};
    const Number number = parse_number(call_.at(1), commas_);
    const std::string tenth = power(number);
    std::string out = number.digits + std::string(call_.get("end"));
    const std::string_view upper = call_.at(2), lower = call_.at(3);
    if (upper.empty()) return lower.empty() ? out + tenth : std::string();
    if (!has_digit(upper) || (!lower.empty() && !has_digit(lower))) return {};
    const std::string end(call_.get("errend"));
    if (lower.empty() && upper.starts_with('(')) return out + std::string(upper) + end + tenth;
    if (lower.empty()) {
      out += "±" + error(upper) + end;
    } else {
      const std::string_view above = call_.get("+errend"), below = call_.get("-errend");
      out += " +" + error(upper) + (above.empty() ? end : std::string(above)) + "/−" +
             error(lower) + (below.empty() ? end : std::string(below));
    }
    return tenth.empty() ? out : "(" + out + ")" + tenth;
  }

  std::string error(std::string_view number) const {
    return parse_number(unsigned_part(number), commas_).digits;
  }

  const TemplateCall& call_;
  const bool commas_;
};

std::string val(const TemplateCall& call) { return Value(call).text(); }

// {{gaps|1.602|176|(40)|e=-19|u=C}}: the gaps are style, not text.
std::string gaps(const TemplateCall& call) {
  if (!call.only(call.values.size(), {"lhs", "e", "base", "u", "gap"})) return {};
  std::string out;
  if (!call.get("lhs").empty()) out.append(call.get("lhs")).append(" = ");
  for (const std::string_view value : call.values) out += value;
  const std::string_view base = call.get("base").empty() ? "10" : call.get("base");
  if (!call.get("e").empty()) out += power_of_ten(call.get("e"), base);
  return out + spaced_unit(call.get("u"), {});
}

std::string times_ten(const TemplateCall& call) {
  return call.only(1, {}) && !call.at(1).empty() ? power_of_ten(call.at(1)) : std::string();
}

std::string ten(const TemplateCall& call) {
  if (!call.only(1, {}) || call.at(1).empty()) return {};
  return "10^" + signed_number(call.at(1));
}

std::string in_tag(std::string_view tag, std::string_view text) {
  std::string out("<");
  return out.append(tag).append(">").append(text).append("</").append(tag).append(">");
}
std::string superscript(const TemplateCall& call) { return in_tag("sup", call.at(1)); }
std::string subscript(const TemplateCall& call) { return in_tag("sub", call.at(1)); }

// {{su|p=+0.1|b=-0.2}}: one above the other.
std::string stacked(std::string_view above, std::string_view below) {
  const auto error = [](std::string_view text) {
    return has_digit(text) && (unsigned_part(text).size() < text.size() || text.starts_with("±"));
  };
  if (!error(above) && !error(below)) {
    return (below.empty() ? "" : in_tag("sub", below)) +
           (above.empty() ? "" : in_tag("sup", above));
  }
  std::string out = " " + signed_number(above);
  if (!above.empty() && !below.empty()) out += "/";
  return out + signed_number(below);
}

std::string su(const TemplateCall& call) {
  if (!call.only(0, {"p", "b", "a", "w", "lh", "sp"})) return {};
  return stacked(call.get("p"), call.get("b"));
}

std::string plus_minus(const TemplateCall& call) {
  if (!call.only(2, {}) || call.values.empty()) return {};
  if (call.at(2).empty()) return "±" + std::string(call.at(1));
  // {{±|0.1|0.2}}: the template writes the signs.
  const std::string_view above = unsigned_part(call.at(1)), below = unsigned_part(call.at(2));
  if (!has_digit(above) || !has_digit(below)) return {};
  return std::string(" +").append(above).append("/−").append(below);
}

// The overline of repeating digits: 0.{{overline|3}} is not 0.3.
std::string overline(const TemplateCall& call) {
  const std::string_view text = call.at(1);
  if (!has_digit(text)) return std::string(text);
  if (!call.only(1, {}) || text.find_first_not_of("0123456789., ") != text.npos) return {};
  std::string out;
  for (const char c : text) {
    out.push_back(c);
    if (is_digits({&c, 1})) out += "\xCC\x85";  // U+0305
  }
  return out;
}

// {{chem|SO|4|2-}}: a number after a formula's letters is a subscript, one with a sign a
// superscript, and numbers before the letters are an isotope's.
std::string chem(const TemplateCall& call) {
  if (!call.only(call.values.size(), {"link", "auto", "disp"})) return {};
  std::string out;
  bool letters = false;
  for (size_t i = 1; i <= call.values.size(); ++i) {
    const std::string_view value = call.at(i);
    const bool number = is_digits(value);
    const bool charge =
        !value.empty() && (value.back() == '+' || value.back() == '-' || value.ends_with(kMinus));
    if (number) {
      out += in_tag(letters || i > 1 ? "sub" : "sup", value);
    } else if (charge && letters) {
      out += in_tag("sup", value.back() == '-'
                               ? std::string(value.substr(0, value.size() - 1)).append(kMinus)
                               : std::string(value));
    } else {
      letters = letters || !value.empty();
      out += value;
    }
  }
  return out;
}

std::string ordinal(const TemplateCall& call) {
  const std::string_view number = call.at(1);
  if (!call.only(1, {"sup"}) || !is_digits(unsigned_part(number))) return {};
  const char last = number.back();
  const bool teen = number.size() > 1 && number[number.size() - 2] == '1';
  const std::string_view end = teen          ? "th"
                               : last == '1' ? "st"
                               : last == '2' ? "nd"
                               : last == '3' ? "rd"
                                             : "th";
  return with_commas(number).append(end);
}

// {{nts|1234|prefix=~}}
std::string sorted_number(const TemplateCall& call) {
  if (!call.only(1, {"prefix", "suffix", "quiet"})) return {};
  return std::string(call.get("prefix")) + with_commas(call.at(1)) +
         std::string(call.get("suffix"));
}

// {{height|ft=6|in=2}}
std::string height(const TemplateCall& call) {
  if (!call.only(0, {"ft", "in", "m", "cm", "precision", "abbr"})) return {};
  std::string out;
  for (const std::string_view unit : {"ft", "in", "m", "cm"}) {
    if (call.get(unit).empty()) continue;
    out.append(out.empty() ? "" : " ").append(call.get(unit)).append(" ").append(unit);
  }
  return out;
}

// {{duration|1|2|3}} and {{duration|m=62|s=3}}: 1:02:03, 62:03.
std::string duration(const TemplateCall& call) {
  if (!call.only(3, {"h", "m", "s"})) return {};
  std::array<std::string_view, 3> parts = {call.get("h"), call.get("m"), call.get("s")};
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].empty()) parts[i] = call.at(i + 1);
    if (!parts[i].empty() && !is_digits(parts[i])) return {};
  }
  if (parts[1].empty() && parts[2].empty()) return {};
  std::string out(parts[0]);
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::string_view part = parts[i].empty() ? "0" : parts[i];
    if (!out.empty()) out += part.size() < 2 ? ":0" : ":";
    out += part;
    if (i == 1 && out.empty()) out += "0";
  }
  return out;
}

std::string numero(const TemplateCall& call) {
  return call.only(1, {}) ? "No. " + std::string(call.at(1)) : std::string();
}

// {{USS|Enterprise|CVN-65}}: the number follows the name, unless the third value says otherwise.
template <const char* kPrefix>
std::string ship(const TemplateCall& call) {
  const std::string_view name = call.at(1), hull = call.at(2), form = call.at(3);
  if (name.empty()) return {};
  std::string out = form == "2" ? std::string(name) : kPrefix + (" " + std::string(name));
  if (!hull.empty() && form.empty()) out.append(" (").append(hull).append(")");
  return out;
}
constexpr char kHmas[] = "HMAS", kHmcs[] = "HMCS", kHms[] = "HMS", kMs[] = "MS", kMv[] = "MV",
               kRms[] = "RMS", kSs[] = "SS", kUsns[] = "USNS", kUss[] = "USS";

// Names of templates, and codes of {{currency}}.
constexpr std::array<MoneyTemplate, 46> kMoney = {{
    {"a$", "A$"},     {"aud", "A$"},   {"au$", "A$"},
    {"brl", "R$"},    {"c$", "C$"},    {"cad", "C$"},
    {"ca$", "C$"},    {"cny", "CN¥"},  {"cn¥", "CN¥"},
    {"eur", "€"},     {"euro", "€"},   {"gbp", "£"},
    {"hk$", "HK$"},   {"hkd", "HK$"},  {"indian rupee", "₹"},
    {"inr", "₹"},     {"jpy", "¥"},    {"krw", "₩"},
    {"mex$", "Mex$"}, {"mxn", "Mex$"}, {"ngn", "₦"},
    {"nis", "₪"},     {"nt$", "NT$"},  {"nz$", "NZ$"},
    {"nzd", "NZ$"},   {"php", "₱"},    {"pound sterling", "£"},
    {"r$", "R$"},     {"rub", "₽"},  {"s$", "S$"},
    {"sgd", "S$"},    {"twd", "NT$"},  {"uah", "₴"},
    {"us$", "US$"},   {"usd", "US$"},  {"us dollar", "US$"},
    {"yen", "¥"},     {"£", "£"},      {"gb£", "£"},
    {"¥", "¥"},       {"jp¥", "¥"},    {"€", "€"},
    {"₩", "₩"},       {"₱", "₱"},      {"₹", "₹"},
    {"₽", "₽"},
}};

// Words that multiply an amount, and short forms of them.
constexpr std::array<std::pair<std::string_view, std::string_view>, 18> kMultipliers = {{
    {"thousand", ""},
    {"k", "thousand"},
    {"lakh", ""},
    {"l", "lakh"},
    {"million", ""},
    {"m", "million"},
    {"mn", "million"},
    {"crore", ""},
    {"c", "crore"},
    {"billion", ""},
    {"b", "billion"},
    {"bn", "billion"},
    {"tn", "trillion"},
    {"trillion", ""},
    {"t", "trillion"},
    {"lc", "lakh crore"},
    {"lakh crore", ""},
    {"hundred", ""},
}};

// Whether the named arguments of a money template only change how the amount is shown.
bool only_style(const TemplateCall& call, size_t most) {
  return call.only(
      most, {"link",     "linked", "nolink", "long",  "year",    "about",      "round", "r",
             "to",       "lk",     "first",  "name",  "date",    "fmt",        "abbr",  "adj",
             "sortable", "type",   "amount", "debug", "cursign", "passthrough"});
}

// The sign, the amount and its multiplier, in whose place a year may be; empty if it is neither.
std::string with_sign(std::string_view sign, std::string_view amount, std::string_view multiplier) {
  if (amount.empty()) return {};
  std::string text = std::string(sign).append(amount);
  if (multiplier.empty() || (multiplier.size() == 4 && is_digits(multiplier))) return text;
  const std::string word = ascii_lower(multiplier);
  for (const auto& [written, whole] : kMultipliers) {
    if (written == word) return text.append(" ").append(whole.empty() ? written : whole);
  }
  return {};
}

// {{currency|5|USD}}
std::string currency(const TemplateCall& call) {
  if (!only_style(call, 3)) return {};
  const std::string code = ascii_lower(call.at(2).empty() ? call.get("type") : call.at(2));
  const auto* money = std::find_if(kMoney.begin(), kMoney.end(),
                                   [&](const MoneyTemplate& m) { return m.name == code; });
  const std::string_view amount = call.get("amount").empty() ? call.at(1) : call.get("amount");
  return money == kMoney.end() ? std::string() : with_sign(money->sign, amount, call.at(3));
}

// {{INRConvert|5|c}} without its conversion into dollars.
std::string rupees(const TemplateCall& call) { return with_sign("₹", call.at(1), call.at(2)); }

constexpr std::array<ComputedTemplate, 52> kRows = {{
    {"1/2", fixed_fraction<'1', '2'>},
    {"1/3", fixed_fraction<'1', '3'>},
    {"1/4", fixed_fraction<'1', '4'>},
    {"1/8", fixed_fraction<'1', '8'>},
    {"2/3", fixed_fraction<'2', '3'>},
    {"3/4", fixed_fraction<'3', '4'>},
    {"10^", ten},
    {"chem", chem},
    {"currency", currency},
    {"duration", duration},
    {"e", times_ten},
    {"e-sp", times_ten},
    {"esp", times_ten},
    {"frac", frac},
    {"fraction", frac},
    {"gaps", gaps},
    {"half", fixed_fraction<'1', '2'>},
    {"height", height},
    {"hmas", ship<kHmas>},
    {"hmcs", ship<kHmcs>},
    {"hms", ship<kHms>},
    {"inr convert", rupees},
    {"inrconvert", rupees},
    {"ms", ship<kMs>},
    {"mv", ship<kMv>},
    {"no.", numero},
    {"nts", sorted_number},
    {"number table sorting", sorted_number},
    {"numero", numero},
    {"ord", ordinal},
    {"ordinal", ordinal},
    {"overbar", overline},
    {"overline", overline},
    {"quarter", fixed_fraction<'1', '4'>},
    {"radic", root},
    {"radical", root},
    {"rms", ship<kRms>},
    {"sfrac", frac},
    {"sqrt", root},
    {"ss", ship<kSs>},
    {"su", su},
    {"sub", subscript},
    {"sup", superscript},
    {"usns", ship<kUsns>},
    {"uss", ship<kUss>},
    {"val", val},
    {"x10", times_ten},
    {"x10^", times_ten},
    {"×10", times_ten},
    {"×10^", times_ten},
    {"±", plus_minus},
    {"√", root},
}};

}  // namespace

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of(kDigits) == text.npos;
}

std::string with_commas(std::string_view number) {
  std::string out;
  if (number.starts_with('-')) {
    out = kMinus;
    number.remove_prefix(1);
  }
  const size_t point = std::min(number.find('.'), number.size());
  if (point < 4 || number.find_first_not_of("0123456789.") != std::string_view::npos)
    return out.append(number);
  for (size_t i = 0; i < number.size(); ++i) {
    if (i > 0 && i < point && (point - i) % 3 == 0) out.push_back(',');
    out.push_back(number[i]);
  }
  return out;
}

std::string format_number(std::string_view number, std::string_view how) {
  std::string out;
  if (how == "R") {
    std::copy_if(number.begin(), number.end(), std::back_inserter(out),
                 [](char c) { return c != ','; });
    return out;
  }
  const size_t sign = number.starts_with('-') ? 1 : 0;
  const size_t point = std::min(number.find('.'), number.size());
  if (ascii_lower(how) == "nosep" || number.find_first_not_of("0123456789.", sign) != number.npos)
    return std::string(number);
  for (size_t i = 0; i < number.size(); ++i) {
    if (i > sign && i < point && (point - i) % 3 == 0) out.push_back(',');
    out.push_back(number[i]);
  }
  return out;
}

std::span<const MoneyTemplate> money_templates() { return kMoney; }

std::string money_text(std::string_view sign, const TemplateCall& call) {
  return only_style(call, 2) ? with_sign(sign, call.at(1), call.at(2)) : std::string();
}

std::span<const ComputedTemplate> number_templates() { return kRows; }

}  // namespace wiki
