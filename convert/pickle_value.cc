// SPDX-License-Identifier: MIT
// pickle.h: access to nodes. Errors for a missing Value, or one of another kind than requested,
// have the file's name; searching dicts is charged to the file's budget.
#include <bit>

#include "convert/pickle.h"
#include "libindexed/format.h"

namespace convert {
namespace {

const char* kind_name(Kind kind) {
  constexpr const char* kNames[] = {
      "nothing",  "None",      "a boolean", "an integer", "a long integer", "a real",
      "a text",   "bytes",     "a list",    "a tuple",    "a set",          "a dict",
      "a tensor", "a storage", "a dtype",   "an import",  "an object"};
  return kNames[static_cast<size_t>(kind)];
}

bool is_text_key(const std::string_view text, std::string_view key, Kind kind) {
  return kind == Kind::text && text == key;
}

}  // namespace

int64_t PickledTensor::elements() const noexcept {
  int64_t count = 1;
  for (int64_t n : shape) count *= n;
  return count;
}

bool PickledTensor::contiguous() const noexcept {
  int64_t expected = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && stride[i] != expected) return elements() == 0;
    expected *= shape[i];
  }
  return true;
}

// --- Value ---------------------------------------------------------------------------------------

void Value::fail(const std::string& wanted) const {
  throw indexed::FormatError((pickle_ == nullptr ? std::string() : pickle_->path() + ": ") +
                             "its pickle has " + kind_name(kind()) + " where " + wanted +
                             " is expected");
}

Kind Value::kind() const noexcept { return index_ < 0 ? Kind::absent : pickle_->node(index_).kind; }

std::optional<int64_t> Value::integer() const noexcept {
  if (!is(Kind::integer) && !is(Kind::boolean)) return std::nullopt;
  return pickle_->node(index_).number;
}

std::optional<double> Value::real() const noexcept {
  if (is(Kind::real)) return std::bit_cast<double>(pickle_->node(index_).number);
  if (is(Kind::integer)) return static_cast<double>(pickle_->node(index_).number);
  return std::nullopt;
}

std::string_view Value::text() const noexcept {
  return index_ < 0 ? std::string_view() : std::string_view(pickle_->node(index_).text);
}

int64_t Value::size() const noexcept {
  if (index_ < 0) return 0;
  const int64_t count = static_cast<int64_t>(pickle_->children(index_).size());
  return is(Kind::dict) ? count / 2 : count;
}

Value Value::child(int64_t i, int64_t count, const char* what) const {
  if (i < 0 || i >= count) fail(std::string(what) + " " + std::to_string(i));
  return Value(pickle_, pickle_->children(index_)[static_cast<size_t>(i)]);
}

Value Value::item(int64_t i) const { return child(i, is(Kind::dict) ? 0 : size(), "item"); }

Value Value::key(int64_t i) const {
  if (!is(Kind::dict) || i < 0 || i >= size()) fail("key " + std::to_string(i));
  return child(2 * i, 2 * size(), "key");
}

Value Value::value(int64_t i) const {
  if (!is(Kind::dict) || i < 0 || i >= size()) fail("value " + std::to_string(i));
  return child(2 * i + 1, 2 * size(), "value");
}

Value Value::find(std::string_view key) const {
  if (!is(Kind::dict)) return Value(pickle_, -1);
  const std::vector<int32_t>& items = pickle_->node(index_).items;
  for (size_t i = items.size(); i >= 2; i -= 2) {
    pickle_->budget().spend(1);
    const Pickle::Node& candidate = pickle_->node(items[i - 2]);
    if (is_text_key(candidate.text, key, candidate.kind)) return Value(pickle_, items[i - 1]);
  }
  return Value(pickle_, -1);
}

Value Value::attribute(std::string_view name) const {
  if (index_ < 0) return Value(pickle_, -1);
  const std::vector<int32_t>& states = pickle_->states(index_);
  for (size_t i = states.size(); i-- > 0;) {
    pickle_->budget().spend(1);
    if (Value found = Value(pickle_, states[i]).find(name)) return found;
  }
  return find(name);
}

Value Value::state() const noexcept {
  if (index_ < 0 || pickle_->states(index_).empty()) return Value(pickle_, -1);
  return Value(pickle_, pickle_->states(index_).back());
}

const PickledTensor& Value::tensor() const {
  if (!is(Kind::tensor)) fail("a tensor");
  return pickle_->tensors_[static_cast<size_t>(pickle_->node(index_).number)];
}

const std::vector<int32_t>& Pickle::children(int32_t i) const noexcept {
  const Node& one = node(i);
  return one.arguments >= 0 ? node(one.arguments).items : one.items;
}

const std::vector<int32_t>& Pickle::states(int32_t i) const noexcept {
  static const std::vector<int32_t> kNone;
  return node(i).states < 0 ? kNone : states_[static_cast<size_t>(node(i).states)];
}

}  // namespace convert
