// SPDX-License-Identifier: MIT
// {{#expr:}}: numbers, + - * / ^ mod round, comparisons, and or not, e, pi, and the common
// functions. Precedence as Help:Extension:ParserFunctions lists it. Recursion is bounded by the
// nesting it allows.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "tools/wiki/templates.h"
#include "tools/wiki/wikitext.h"

namespace wiki {
namespace {

class Expression {
 public:
  explicit Expression(std::string_view text) : text_(ascii_lower(text)) {}

  double value() {
    const double result = disjunction();
    space();
    if (at_ != text_.size()) fail("unexpected character");
    return result;
  }

 private:
  static constexpr int kDeepest = 100;

  [[noreturn]] static void fail(const char* what) { throw std::invalid_argument(what); }

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
    while (word("round")) {
      const double scale = std::pow(10.0, std::trunc(sum()));
      left = std::round(left * scale) / scale;
    }
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
        const double right = std::trunc(power());
        if (right == 0) fail("division by zero");
        left = std::fmod(std::trunc(left), right);
      } else {
        return left;
      }
    }
  }
  double power() {
    double left = unary();
    while (symbol("^")) left = std::pow(left, unary());
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
    if (word("not")) return unary() == 0;
    if (word("abs")) return std::fabs(unary());
    if (word("floor")) return std::floor(unary());
    if (word("ceil")) return std::ceil(unary());
    if (word("trunc")) return std::trunc(unary());
    if (word("sqrt")) return std::sqrt(unary());
    if (word("ln")) return std::log(unary());
    if (word("exp")) return std::exp(unary());
    if (word("sin")) return std::sin(unary());
    if (word("cos")) return std::cos(unary());
    if (word("tan")) return std::tan(unary());
    if (word("pi")) return 3.141592653589793;
    if (symbol("(")) {
      const double inner = disjunction();
      if (!symbol(")")) fail("missing )");
      return inner;
    }
    space();
    const char* begin = text_.c_str() + at_;
    if (*begin != '.' && (*begin < '0' || *begin > '9'))
      fail(word("e") ? "lone e" : "expected a number");
    char* end = nullptr;
    const double number = std::strtod(begin, &end);
    at_ += static_cast<size_t>(end - begin);
    return number;
  }

  std::string text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::string evaluate_expression(std::string_view expression) {
  constexpr size_t kLongest = 4096;
  if (expression.size() > kLongest) throw std::invalid_argument("expression too long");
  if (trim(expression).empty()) return {};
  const double value = Expression(expression).value();
  if (!std::isfinite(value)) throw std::invalid_argument("not a finite number");
  char text[64];
  std::snprintf(text, sizeof text, "%.14G", value == 0 ? 0.0 : value);
  return text;
}

}  // namespace wiki
