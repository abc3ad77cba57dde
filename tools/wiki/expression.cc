// SPDX-License-Identifier: MIT
// {{#expr:}}: decimal numbers, + - * / ^ e mod fmod round, comparisons, and or not, the constants e
// and pi, and the functions of one number. Precedence as Help:Extension:ParserFunctions lists it;
// an overflow gives infinity and is not an error, as in that extension's ExprParser.php. Recursion
// is bounded by a limit on nesting.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numbers>
#include <stdexcept>
#include <utility>

#include "tools/wiki/templates.h"
#include "tools/wiki/wikitext.h"

namespace wiki {
namespace {

[[noreturn]] void fail(const char* what) { throw std::invalid_argument(what); }

// Converts a double to an int as PHP does: zero has no sign, and values that are not finite become
// 0.
double whole(double x) { return std::isfinite(x) ? std::trunc(x) + 0.0 : 0.0; }

// The nearest whole number; halves go away from zero.
double to_nearest(double x) { return x >= 0 ? std::floor(x + 0.5) : std::ceil(x - 0.5); }

// `value` times ten to the power of `places`, which may be negative.
double shifted(double value, int places) {
  const double factor = std::pow(10.0, std::abs(places));
  return places >= 0 ? value * factor : value / factor;
}

// PHP's round(), which MediaWiki calls: the value is first rounded to the 15 digits that a double
// holds for certain, so that 1.005, whose double is a little less, becomes 1.01 with two places.
// Source: PHP's manual of round() and RFC "Rounding" (pre-rounding; PHP 5.3 to 8.3).
double rounded(double value, double digits) {
  constexpr int kCertain = 15, kMost = 400, kLeast = -60;
  if (!std::isfinite(value) || value == 0) return value;
  const int places = static_cast<int>(std::clamp(digits, -double{kMost}, double{kMost}));
  const int known = kCertain - 1 - static_cast<int>(std::floor(std::log10(std::fabs(value))));
  double scaled;
  if (known > places && known - kCertain < places) {
    const int used = std::max(known, kLeast);
    scaled = shifted(to_nearest(shifted(value, used)), std::max(places - used, kLeast));
  } else {
    scaled = shifted(value, places);
    if (!(std::fabs(scaled) < 1e15)) return value;  // it has no further digits
  }
  const double whole = to_nearest(scaled);
  const double result = whole == 0 ? whole : shifted(whole, -places);
  return std::isfinite(result) ? result : value;
}

double checked(bool defined, double result) {
  if (!defined) fail("no number");
  return result;
}

struct Function {
  std::string_view name;
  double (*of)(double);
};
constexpr std::array<Function, 14> kFunctions = {{
    {"not", [](double x) { return x == 0 ? 1.0 : 0.0; }},
    {"abs", [](double x) { return std::fabs(x); }},
    {"floor", [](double x) { return std::floor(x); }},
    {"ceil", [](double x) { return std::ceil(x); }},
    {"trunc", [](double x) { return whole(x); }},
    {"sqrt", [](double x) { return checked(x >= 0, std::sqrt(x)); }},
    {"ln", [](double x) { return checked(!(x <= 0), std::log(x)); }},
    {"exp", [](double x) { return std::exp(x); }},
    {"sin", [](double x) { return std::sin(x); }},
    {"cos", [](double x) { return std::cos(x); }},
    {"tan", [](double x) { return std::tan(x); }},
    {"asin", [](double x) { return checked(!(std::fabs(x) > 1), std::asin(x)); }},
    {"acos", [](double x) { return checked(!(std::fabs(x) > 1), std::acos(x)); }},
    {"atan", [](double x) { return std::atan(x); }},
}};

class Expression {
 public:
  explicit Expression(std::string_view text) : text_(ascii_lower(text)) {
    for (const auto& [escaped, sign] :
         {std::pair{"&lt;", "<"}, std::pair{"&gt;", ">"}, std::pair{"&minus;", "-"}})
      replace_all(escaped, sign);
  }

  double value() {
    const double result = disjunction();
    space();
    if (at_ != text_.size()) fail("unexpected character");
    return result;
  }

 private:
  static constexpr int kDeepest = 100;

  void replace_all(std::string_view what, std::string_view with) {
    for (size_t at = 0; (at = text_.find(what, at)) != std::string::npos; at += with.size())
      text_.replace(at, what.size(), with);
  }
  void space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t'))
      ++at_;
  }
  bool symbol(std::string_view wanted) {
    space();
    if (text_.compare(at_, wanted.size(), wanted) != 0) return false;
    at_ += wanted.size();
    return true;
  }
  bool word(std::string_view wanted) {
    space();
    if (text_.compare(at_, wanted.size(), wanted) != 0) return false;
    const size_t end = at_ + wanted.size();
    if (end < text_.size() && text_[end] >= 'a' && text_[end] <= 'z') return false;
    at_ = end;
    return true;
  }

  double disjunction() {
    double left = conjunction();
    while (word("or")) {
      const double right = conjunction();
      left = left != 0 || right != 0;
    }
    return left;
  }
  double conjunction() {
    double left = comparison();
    while (word("and")) {
      const double right = comparison();
      left = left != 0 && right != 0;
    }
    return left;
  }
  double comparison() {
    double left = rounding();
    while (true) {
      if (symbol("<>") || symbol("!="))
        left = left != rounding();
      else if (symbol("<="))
        left = left <= rounding();
      else if (symbol(">="))
        left = left >= rounding();
      else if (symbol("<"))
        left = left < rounding();
      else if (symbol(">"))
        left = left > rounding();
      else if (symbol("="))
        left = left == rounding();
      else
        return left;
    }
  }
  double rounding() {
    double left = sum();
    while (word("round")) left = rounded(left, whole(sum()));
    return left;
  }
  double sum() {
    double left = product();
    while (true) {
      if (symbol("+"))
        left += product();
      else if (symbol("-") || symbol("−"))
        left -= product();
      else
        return left;
    }
  }
  double product() {
    double left = power();
    while (true) {
      if (symbol("*")) {
        left *= power();
      } else if (symbol("/") || word("div")) {
        const double right = power();
        if (right == 0) fail("division by zero");
        left /= right;
      } else if (word("mod")) {
        const double right = whole(power());
        if (right == 0) fail("division by zero");
        left = whole(std::fmod(whole(left), right));
      } else if (word("fmod")) {
        const double right = power();
        if (right == 0) fail("division by zero");
        left = std::fmod(left, right);
      } else {
        return left;
      }
    }
  }
  double power() {
    double left = scaled();
    while (symbol("^")) left = std::pow(left, scaled());
    return left;
  }
  // 2e3, 2 e (1+2): an operator like others, with which MediaWiki writes exponents.
  double scaled() {
    double left = unary();
    while (word("e")) left *= std::pow(10.0, unary());
    return left;
  }
  double unary() {
    if (++depth_ > kDeepest) fail("nested too deeply");
    const double result = unary_here();
    --depth_;
    return result;
  }
  double unary_here() {
    if (symbol("-") || symbol("−")) return -unary();
    if (symbol("+")) return unary();
    for (const Function& function : kFunctions) {
      if (word(function.name)) return function.of(scaled());
    }
    if (word("pi")) return std::numbers::pi;
    if (word("e")) return std::numbers::e;
    if (symbol("(")) {
      const double inner = disjunction();
      if (!symbol(")")) fail("missing )");
      return inner;
    }
    return number();
  }
  // Digits and points; a second point silently ends the number, as in MediaWiki.
  double number() {
    space();
    const size_t end = std::min(text_.find_first_not_of("0123456789.", at_), text_.size());
    if (end == at_) fail("expected a number");
    const double value = std::strtod(text_.substr(at_, end - at_).c_str(), nullptr);
    at_ = end;
    return value;
  }

  std::string text_;
  size_t at_ = 0;
  int depth_ = 0;
};

// Fourteen digits; an exponent follows a fraction and has no leading zeros: 1.0E-5.
std::string as_php(double value) {
  if (std::isnan(value)) return "NAN";
  char digits[64];
  std::snprintf(digits, sizeof digits, "%.14G", value);  // INF and -INF are also PHP's spelling.
  const std::string_view text(digits);
  const size_t e = text.find('E');
  if (e == std::string_view::npos) return digits;
  std::string out(text.substr(0, e));
  if (out.find('.') == std::string::npos) out += ".0";
  out += text.substr(e, 2);
  return out += text.substr(text.find_first_not_of('0', e + 2));
}

}  // namespace

std::string evaluate_expression(std::string_view expression) {
  constexpr size_t kLongest = 4096;
  if (expression.size() > kLongest) throw std::invalid_argument("expression too long");
  if (trim(expression).empty()) return {};
  return as_php(Expression(expression).value());
}

}  // namespace wiki
