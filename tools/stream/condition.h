// SPDX-License-Identifier: MIT
// Room: tools/stream. --where: a condition on a JSON line's fields, such as
//   language == "en" and (score > 0.5 or not flagged) and source in ["a", "b"]
// Values have the types of JSON; nothing is converted. A field that is missing is null. < <= > >=
// compare two numbers or two strings (by code points), and are false for null; == and != compare
// anything, and values of different types are different. A field alone must be a boolean; null is
// false. A field of another type than an operator needs makes the line a bad record.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tools/stream/members.h"

namespace stream {

/// A value of a field or of the text of a condition.
struct FieldValue {
  JsonType type = JsonType::null;
  /// A double, or a whole number of 64 bits, which a double would round.
  long double number = 0;
  bool truth = false;
  std::string text = {};
};

/// A parsed condition, with the memory for evaluating it. One thread at a time; copies are
/// independent.
class Condition {
 public:
  /// Errors: cli::UsageError with the byte of `text` and what is expected there, or for a
  /// comparison of two values that no line can make true or false.
  explicit Condition(std::string_view text);

  /// Whether `line` satisfies it: 1 or 0; -1 with `complaint` set if the line is not a JSON object,
  /// or a field has a type that the condition cannot use.
  int holds(std::string_view line, Complaint& complaint);

 private:
  enum class Kind { any, all, no, truth, equal, unequal, less, at_most, more, at_least, in };
  /// An operand: the field with this number, or a value.
  struct Operand {
    size_t field = std::string::npos;
    FieldValue value = {};
  };
  struct Node {
    Kind kind = Kind::truth;
    std::vector<size_t> parts = {};  ///< of any, all, no: other nodes
    std::vector<Operand> operands = {};
  };
  class Parser;

  int evaluate(const Node& node, std::string_view line, Complaint& complaint) const;
  int order(const Node& node, const FieldValue& a, const FieldValue& b, Complaint& complaint) const;
  FieldValue value(const Operand& operand, std::string_view line) const;
  int refuse(const Operand& operand, std::string_view expected, Complaint& complaint) const;

  std::vector<Node> nodes_;  ///< the last is the whole
  std::vector<std::string> fields_;
  MemberFinder finder_;
  std::string room_;
};

}  // namespace stream
