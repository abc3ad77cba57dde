// SPDX-License-Identifier: MIT
// Room: tools/stream. See condition.h: a recursive-descent parser, and evaluation of its nodes.
#include "tools/stream/condition.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "tools/cli/flags.h"
#include "tools/cli/text.h"
#include "tools/stream/json_string.h"

namespace stream {
namespace {

constexpr int kDeepest = 64;  // nested brackets and nots
constexpr size_t kNoField = std::string::npos;

static_assert(std::numeric_limits<long double>::digits >= 64);

// A whole number of at most 64 bits exactly, any other number as the nearest double.
std::optional<long double> number_of(std::string_view text) {
  const bool negative = text.starts_with('-');
  const std::string_view word = text.substr(negative ? 1 : 0);
  uint64_t whole = 0;
  const std::from_chars_result all = std::from_chars(word.data(), word.data() + word.size(), whole);
  if (all.ec == std::errc() && all.ptr == word.data() + word.size()) {
    const auto exact = static_cast<long double>(whole);
    return negative ? -exact : exact;
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (word == "Infinity") return negative ? -kInfinity : kInfinity;
  if (text == "NaN") return std::nan("");
  double number = 0;
  const std::from_chars_result end =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (end.ec == std::errc::result_out_of_range)  // as Python reads it: too large, or next to 0
    return word.find("e-") != word.npos || word.find("E-") != word.npos ? 0.0
           : negative                                                   ? -kInfinity
                                                                        : kInfinity;
  if (text.empty() || end.ec != std::errc() || end.ptr != text.data() + text.size()) return {};
  return number;
}

bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-' || static_cast<signed char>(c) < 0;
}

bool same(const FieldValue& a, const FieldValue& b) {
  if (a.type != b.type) return false;
  switch (a.type) {
    case JsonType::string:
      return a.text == b.text;
    case JsonType::number:
      return a.number == b.number;
    case JsonType::boolean:
      return a.truth == b.truth;
    case JsonType::null:
      return true;
    default:
      return false;  // lists and objects equal nothing
  }
}

}  // namespace

class Condition::Parser {
 public:
  Parser(std::string_view text, std::vector<Node>& nodes, std::vector<std::string>& fields)
      : text_(text), nodes_(nodes), fields_(fields) {}

  void run() {
    either();
    if (!at_end()) expected("\"and\", \"or\" or the end");
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw cli::UsageError(cli::concat("--where: byte ", at_ + 1, ": ", what));
  }
  [[noreturn]] void expected(std::string_view what) {
    skip_space();
    if (at_ == text_.size()) fail(cli::concat("the condition ends, expected ", what));
    fail(cli::concat("found ", cli::quote(text_.substr(at_), 20), ", expected ", what));
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n'))
      ++at_;
  }
  bool at_end() {
    skip_space();
    return at_ == text_.size();
  }
  std::string_view word() {
    skip_space();
    size_t end = at_;
    while (end < text_.size() && is_name_byte(text_[end])) ++end;
    return text_.substr(at_, end - at_);
  }
  bool take_word(std::string_view wanted) {
    if (word() != wanted) return false;
    at_ += wanted.size();
    return true;
  }
  bool take(std::string_view mark) {
    skip_space();
    if (!text_.substr(at_).starts_with(mark)) return false;
    at_ += mark.size();
    return true;
  }

  size_t add(Node node) {
    nodes_.push_back(std::move(node));
    return nodes_.size() - 1;
  }

  // PART or PART ...; one part alone is itself.
  template <class Part>
  size_t joined(Kind kind, std::string_view by, const Part& part) {
    std::vector<size_t> parts = {part()};
    while (take_word(by)) parts.push_back(part());
    return parts.size() == 1 ? parts[0] : add({kind, std::move(parts), {}});
  }
  size_t either() {
    return joined(Kind::any, "or",
                  [&] { return joined(Kind::all, "and", [&] { return single(); }); });
  }

  size_t single() {
    if (++depth_ > kDeepest) fail(cli::concat("more than ", kDeepest, " brackets around this"));
    size_t node = 0;
    if (take_word("not")) {
      node = add({Kind::no, {single()}, {}});
    } else if (take("(")) {
      node = either();
      if (!take(")")) expected("\")\"");
    } else {
      node = comparison();
    }
    --depth_;
    return node;
  }

  size_t comparison() {
    constexpr std::array<std::pair<std::string_view, Kind>, 6> kSigns = {{{"==", Kind::equal},
                                                                          {"!=", Kind::unequal},
                                                                          {"<=", Kind::at_most},
                                                                          {">=", Kind::at_least},
                                                                          {"<", Kind::less},
                                                                          {">", Kind::more}}};
    const size_t begin = at_;
    Operand left = operand();
    for (const auto& [sign, kind] : kSigns) {
      if (!take(sign)) continue;
      Operand right = operand();
      if (left.field == kNoField && right.field == kNoField) {
        at_ = begin;
        expected("a comparison with a field");
      }
      if (kind != Kind::equal && kind != Kind::unequal)
        for (const Operand* side : {&left, &right}) check_ordered(*side);
      return add({kind, {}, {std::move(left), std::move(right)}});
    }
    if (text_.substr(at_).starts_with('=')) expected("\"==\"");
    if (left.field == kNoField) {
      at_ = begin;
      expected("a field");
    }
    if (take_word("in")) return member(std::move(left));
    return add({Kind::truth, {}, {std::move(left)}});
  }

  void check_ordered(const Operand& side) {
    if (side.field == kNoField && side.value.type != JsonType::number &&
        side.value.type != JsonType::string)
      fail(cli::concat("< <= > >= compare numbers or strings, not ", name_of(side.value.type)));
  }

  // FIELD in [VALUE, ...]
  size_t member(Operand left) {
    if (!take("[")) expected("\"[\" and a list of values");
    std::vector<Operand> operands = {std::move(left)};
    do {
      operands.push_back(operand());
      if (operands.back().field != kNoField) fail("a list holds values, not fields");
    } while (take(","));
    if (!take("]")) expected("\",\" or \"]\"");
    return add({Kind::in, {}, std::move(operands)});
  }

  Operand field(std::string name) {
    const auto found = std::find(fields_.begin(), fields_.end(), name);
    const size_t number = static_cast<size_t>(found - fields_.begin());
    if (found == fields_.end()) fields_.push_back(std::move(name));
    return {.field = number};
  }

  Operand operand() {
    constexpr std::string_view kWanted = "a field, a number, a string, true, false or null";
    skip_space();
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    if (c == '"' || c == '\'') return {.value = {.type = JsonType::string, .text = quoted()}};
    if (c == '`') return field(quoted());
    std::string_view found = word();
    if (c == '+') found = {};
    for (const std::string_view reserved : {"and", "or", "not", "in"})
      if (found == reserved) expected(kWanted);
    if (found.empty()) expected(kWanted);
    if (found == "true" || found == "false") {
      at_ += found.size();
      return {.value = {.type = JsonType::boolean, .truth = found == "true"}};
    }
    if (take_word("null")) return {};
    if ((c >= '0' && c <= '9') || c == '-' || c == '.') {
      // The + of an exponent is not part of a word.
      if ((found.ends_with('e') || found.ends_with('E')) &&
          text_.substr(at_ + found.size()).starts_with('+')) {
        size_t end = at_ + found.size() + 1;
        while (end < text_.size() && is_name_byte(text_[end])) ++end;
        found = text_.substr(at_, end - at_);
      }
      std::string digits(found);
      std::erase(digits, '+');
      const std::optional<long double> number = number_of(digits);
      if (!number) expected("a number");
      at_ += found.size();
      return {.value = {.type = JsonType::number, .number = *number}};
    }
    at_ += found.size();
    return field(std::string(found));
  }

  // The characters of the escape at at_, behind its backslash; at_ moves to its last byte.
  std::string escaped() {
    constexpr std::string_view kLetters = "nrtbf", kMeant = "\n\r\t\b\f";
    const char c = text_[at_];
    if (const size_t known = kLetters.find(c); known != kLetters.npos)
      return std::string(1, kMeant[known]);
    if (c == 'u') return escaped_numbers();
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))
      fail(cli::concat("unknown escape ", cli::quote(text_.substr(at_ - 1, 2))));
    return std::string(1, c);
  }

  // The same of \uXXXX, or of two, which may be a surrogate pair.
  std::string escaped_numbers() {
    constexpr size_t kBytes = 6;
    const std::string_view rest = text_.substr(at_ - 1);
    const bool two = rest.size() > kBytes && rest.substr(kBytes).starts_with("\\u");
    const std::string_view written = rest.substr(0, two ? 2 * kBytes : kBytes);
    const std::string in_quotes = cli::concat("\"", written, "\"");
    std::string room(in_quotes.size() + kRoomSlack, '\0');
    char* to = room.data();
    const JsonString read = read_string(in_quotes, 0, Spelling::characters, to);
    if (read.fault != StringFault::none || read.end != in_quotes.size())
      fail("expected \\u and four hexadecimal digits");
    if (read.surrogate != std::string_view::npos) fail("half of a surrogate pair");
    at_ += written.size() - 2;
    return std::string(read.text);
  }

  // The string that begins at at_. Escapes are JSON's; before anything but a letter or a digit a
  // backslash stands for that character itself.
  std::string quoted() {
    const size_t begin = at_;
    const char mark = text_[at_++];
    std::string out;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == mark) {
        ++at_;
        return out;
      }
      if (c == '\\' && at_ + 1 < text_.size()) {
        ++at_;
        out += escaped();
      } else {
        out.push_back(c);
      }
    }
    at_ = begin;
    fail("the string that opens here does not end");
  }

  std::string_view text_;
  std::vector<Node>& nodes_;
  std::vector<std::string>& fields_;
  size_t at_ = 0;
  int depth_ = 0;
};

Condition::Condition(std::string_view text) : finder_({}) {
  Parser(text, nodes_, fields_).run();
  finder_ = MemberFinder(fields_);
}

FieldValue Condition::value(const Operand& operand, std::string_view line) const {
  if (operand.field == kNoField) return operand.value;
  const JsonSpan& span = finder_.spans()[operand.field];
  if (span.end == 0) return {};
  FieldValue value{.type = span.type};
  const std::string_view written = line.substr(span.begin, span.end - span.begin);
  if (span.type == JsonType::string) value.text = span.text;
  if (span.type == JsonType::boolean) value.truth = written.starts_with('t');
  if (span.type == JsonType::number) value.number = number_of(written).value_or(std::nan(""));
  return value;
}

int Condition::refuse(const Operand& operand, std::string_view expected,
                      Complaint& complaint) const {
  const JsonSpan& span = finder_.spans()[operand.field];
  complaint = {Reason::wrong_type, span.begin,
               cli::concat("--where: key ", cli::quote(fields_[operand.field]), " is ",
                           name_of(span.type), ", expected ", expected)};
  return -1;
}

int Condition::order(const Node& node, const FieldValue& a, const FieldValue& b,
                     Complaint& complaint) const {
  const std::array<const FieldValue*, 2> sides = {&a, &b};
  for (size_t i = 0; i < 2; ++i)
    if (sides[i]->type == JsonType::null) return 0;
  for (size_t i = 0; i < 2; ++i) {
    const bool ordered = sides[i]->type == JsonType::number || sides[i]->type == JsonType::string;
    if (ordered && a.type == b.type) continue;
    const Operand& own = node.operands[i];
    const JsonType other = sides[1 - i]->type;
    if (own.field == kNoField ||
        (ordered && other != JsonType::number && other != JsonType::string))
      continue;
    return refuse(own,
                  other == JsonType::number   ? "a number"
                  : other == JsonType::string ? "a string"
                                              : "a number or a string",
                  complaint);
  }
  const auto compare = [&](const auto& x, const auto& y) {
    return node.kind == Kind::less      ? x < y
           : node.kind == Kind::at_most ? x <= y
           : node.kind == Kind::more    ? x > y
                                        : x >= y;
  };
  return a.type == JsonType::number ? compare(a.number, b.number) : compare(a.text, b.text);
}

int Condition::evaluate(const Node& node, std::string_view line, Complaint& complaint) const {
  if (node.kind == Kind::any || node.kind == Kind::all) {
    const int ends = node.kind == Kind::any ? 1 : 0;
    for (const size_t part : node.parts) {
      const int met = evaluate(nodes_[part], line, complaint);
      if (met == -1 || met == ends) return met;
    }
    return 1 - ends;
  }
  if (node.kind == Kind::no) {
    const int met = evaluate(nodes_[node.parts[0]], line, complaint);
    return met == -1 ? met : 1 - met;
  }
  const FieldValue left = value(node.operands[0], line);
  if (node.kind == Kind::truth) {
    if (left.type == JsonType::null) return 0;
    return left.type == JsonType::boolean ? left.truth
                                          : refuse(node.operands[0], "true or false", complaint);
  }
  if (node.kind == Kind::in)
    return std::any_of(node.operands.begin() + 1, node.operands.end(),
                       [&](const Operand& one) { return same(left, one.value); });
  const FieldValue right = value(node.operands[1], line);
  if (node.kind == Kind::equal) return same(left, right);
  if (node.kind == Kind::unequal) return !same(left, right);
  return order(node, left, right, complaint);
}

int Condition::holds(std::string_view line, Complaint& complaint) {
  room_.resize(std::max(room_.size(), line.size() + kRoomSlack));
  char* room = room_.data();
  if (!finder_.find(line, {}, Spelling::characters, room, complaint)) return -1;
  return evaluate(nodes_.back(), line, complaint);
}

}  // namespace stream
