// SPDX-License-Identifier: MIT
// The stack machine of Pickle: opcodes in pickle.cc, the meaning of imports and calls in
// pickle_calls.cc. Only these two files include this header. Every index into the arena is checked
// when it is made, so nodes refer only to existing nodes; cycles through BUILD and SETITEM are
// possible, as in Python, and nothing here traverses a graph. Code that takes memory, or reads more
// than the opcode's own bytes, charges the file's budget first.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "convert/pickle.h"
#include "libindexed/format.h"

namespace convert {

/// Reads one pickle into an arena; can be used once.
class PickleMachine {
 public:
  PickleMachine(Pickle& pickle, std::span<const std::byte> bytes, const std::string& path)
      : pickle_(pickle), bytes_(bytes), path_(path) {}

  /// Runs to STOP. Errors: indexed::FormatError.
  void run();

 private:
  using Node = Pickle::Node;
  using Items = std::vector<int32_t>;
  static constexpr int32_t kMark = -2;

  [[noreturn]] void fail(const std::string& why) const;

  // Bytes.
  std::string_view take(int64_t count);
  std::string_view take_line();
  uint64_t take_uint(int bytes);
  int64_t take_length(int bytes);

  // Nodes and stack.
  int32_t add(Node node);
  int32_t add(Kind kind, std::string_view text = {});
  int32_t add_integer(int64_t value);
  Node& at(int32_t i) { return pickle_.nodes_[static_cast<size_t>(i)]; }
  void push(int32_t index);
  int32_t pop();
  int32_t top();
  Items pop_to_mark();
  Budget& budget() const { return *pickle_.budget_; }
  void count_entries(size_t count);
  void memo_put(uint64_t slot);
  void memo_get(uint64_t slot);

  // Opcodes, by family; each returns false when the opcode is another family's.
  bool step(uint8_t op);
  bool step_number(uint8_t op);
  bool step_text(uint8_t op);
  bool step_container(uint8_t op);
  bool step_memo(uint8_t op);
  bool step_object(uint8_t op);
  void push_long(std::string_view digits);
  void push_tuple(size_t count);
  void set_items(const Items& pairs);
  void append(const Items& items);
  void build();
  void add_state(Node& object, int32_t state);

  // Imports and calls (pickle_calls.cc).
  void import(std::string_view module, std::string_view name);
  void call(int32_t callable, int32_t arguments);
  bool call_container(std::string_view what, int32_t arguments);
  bool call_plain(std::string_view what, int32_t arguments);
  void join_path(const Items& parts, char separator);
  bool call_tensor(std::string_view what, int32_t arguments);
  void call_foreign(int32_t callable, int32_t arguments);
  void push_storage(int32_t id);
  void push_tensor(const Items& arguments, std::string_view dtype);
  static std::optional<Node> numpy_number(std::string_view type, std::string_view raw);
  void push_numpy_scalar(const Items& arguments);
  int64_t integer(int32_t index, const char* what);
  std::vector<int64_t> integers(int32_t index, const char* what);
  void check_view(const PickledTensor& tensor) const;

  Pickle& pickle_;
  std::span<const std::byte> bytes_;
  const std::string& path_;
  int64_t position_ = 0;
  int64_t opcode_position_ = 0;
  std::vector<int32_t> stack_;
  std::unordered_map<uint64_t, int32_t> memo_;
  std::unordered_set<std::string> foreign_seen_;
  bool stopped_ = false;
};

}  // namespace convert
