// SPDX-License-Identifier: MIT
// pickle.h: the opcodes. Not here: the meaning of imports and calls (pickle_calls.cc), access to
// nodes (pickle_value.cc). Opcodes that run code in other ways (INST, OBJ, EXT, PERSID) and those
// for out-of-band buffers are refused, and so are opcodes unknown to CPython.
#include "convert/pickle.h"

#include <bit>
#include <cstring>

#include "convert/pickle_machine.h"

namespace convert {
namespace {

constexpr size_t kMaxNodes = 10'000'000;
constexpr int64_t kMaxOneText = int64_t{64} << 20;

// Budget for an entry of a list, whose memory grows by doubling, and of the memo.
constexpr int64_t kEntryBytes = 2 * sizeof(int32_t), kMemoBytes = 48;

// The opcodes understood, named as in CPython's pickle.py.
enum Opcode : uint8_t {
  MARK = '(',
  STOP = '.',
  POP = '0',
  POP_MARK = '1',
  DUP = '2',
  BINFLOAT = 'G',
  BININT = 'J',
  BININT1 = 'K',
  BININT2 = 'M',
  NONE = 'N',
  BINPERSID = 'Q',
  REDUCE = 'R',
  BINSTRING = 'T',
  SHORT_BINSTRING = 'U',
  BINUNICODE = 'X',
  EMPTY_LIST = ']',
  APPEND = 'a',
  BUILD = 'b',
  GLOBAL = 'c',
  APPENDS = 'e',
  BINGET = 'h',
  LONG_BINGET = 'j',
  BINPUT = 'q',
  LONG_BINPUT = 'r',
  SETITEM = 's',
  TUPLE = 't',
  EMPTY_TUPLE = ')',
  SETITEMS = 'u',
  EMPTY_DICT = '}',
  LIST = 'l',
  DICT = 'd',
  BINBYTES = 'B',
  SHORT_BINBYTES = 'C',
  PROTO = 0x80,
  NEWOBJ = 0x81,
  TUPLE1 = 0x85,
  TUPLE2 = 0x86,
  TUPLE3 = 0x87,
  NEWTRUE = 0x88,
  NEWFALSE = 0x89,
  LONG1 = 0x8a,
  LONG4 = 0x8b,
  SHORT_BINUNICODE = 0x8c,
  BINUNICODE8 = 0x8d,
  BINBYTES8 = 0x8e,
  EMPTY_SET = 0x8f,
  ADDITEMS = 0x90,
  FROZENSET = 0x91,
  NEWOBJ_EX = 0x92,
  STACK_GLOBAL = 0x93,
  MEMOIZE = 0x94,
  FRAME = 0x95,
  BYTEARRAY8 = 0x96,
};

}  // namespace

Pickle::Pickle(std::span<const std::byte> bytes, const std::string& path,
               std::shared_ptr<Budget> budget)
    : path_(path), budget_(budget ? std::move(budget) : std::make_shared<Budget>(path)) {
  PickleMachine(*this, bytes, path_).run();
}

// --- bytes, nodes, stack -------------------------------------------------------------------------

void PickleMachine::fail(const std::string& why) const {
  throw indexed::FormatError(path_ + ": pickle byte " + std::to_string(opcode_position_) + ": " +
                             why);
}

std::string_view PickleMachine::take(int64_t count) {
  if (count > static_cast<int64_t>(bytes_.size()) - position_) fail("ends in the middle");
  const char* begin = reinterpret_cast<const char*>(bytes_.data()) + position_;
  position_ += count;
  budget().read(count);
  return {begin, static_cast<size_t>(count)};
}

std::string_view PickleMachine::take_line() {
  const char* begin = reinterpret_cast<const char*>(bytes_.data()) + position_;
  const size_t left = bytes_.size() - static_cast<size_t>(position_);
  const void* end = left == 0 ? nullptr : std::memchr(begin, '\n', left);
  if (end == nullptr) fail("ends in the middle");
  const size_t length = static_cast<size_t>(static_cast<const char*>(end) - begin);
  if (length > 4096) fail("a name of " + std::to_string(length) + " bytes");
  position_ += static_cast<int64_t>(length) + 1;
  budget().read(static_cast<int64_t>(length) + 1);
  return {begin, length};
}

uint64_t PickleMachine::take_uint(int bytes) {
  const std::string_view raw = take(bytes);
  uint64_t value = 0;
  for (size_t i = 0; i < raw.size(); ++i)
    value |= static_cast<uint64_t>(static_cast<uint8_t>(raw[i])) << (8 * i);
  return value;
}

int64_t PickleMachine::take_length(int bytes) {
  const uint64_t length = take_uint(bytes);
  if (length > static_cast<uint64_t>(kMaxOneText))
    fail("a string of " + std::to_string(length) + " bytes, at most 64 MiB");
  return static_cast<int64_t>(length);
}

int32_t PickleMachine::add(Node node) {
  if (pickle_.nodes_.size() >= kMaxNodes) fail("more than 10 million objects");
  budget().spend(static_cast<int64_t>(sizeof(Node)));
  pickle_.nodes_.push_back(std::move(node));
  return static_cast<int32_t>(pickle_.nodes_.size() - 1);
}

int32_t PickleMachine::add(Kind kind, std::string_view text) {
  budget().spend(static_cast<int64_t>(text.size()));
  Node node;
  node.kind = kind;
  node.text = text;
  return add(std::move(node));
}

int32_t PickleMachine::add_integer(int64_t value) {
  Node node;
  node.kind = Kind::integer;
  node.number = value;
  return add(std::move(node));
}

void PickleMachine::push(int32_t index) {
  if (stack_.size() >= kMaxNodes) fail("more than 10 million objects on the stack");
  budget().spend(kEntryBytes);
  stack_.push_back(index);
}

int32_t PickleMachine::pop() {
  const int32_t index = top();
  stack_.pop_back();
  return index;
}

int32_t PickleMachine::top() {
  if (stack_.empty() || stack_.back() == kMark) fail("the stack is empty");
  return stack_.back();
}

PickleMachine::Items PickleMachine::pop_to_mark() {
  size_t begin = stack_.size();
  while (begin > 0 && stack_[begin - 1] != kMark) --begin;
  if (begin == 0) fail("no mark on the stack");
  Items items(stack_.begin() + static_cast<ptrdiff_t>(begin), stack_.end());
  stack_.resize(begin - 1);
  return items;
}

// Charges entries that are added to a list, tuple or dict, or traversed.
void PickleMachine::count_entries(size_t count) {
  budget().spend(kEntryBytes * static_cast<int64_t>(count));
}

void PickleMachine::memo_put(uint64_t slot) {
  if (memo_.size() >= kMaxNodes) fail("more than 10 million remembered objects");
  budget().spend(kMemoBytes);
  memo_[slot] = top();
}

void PickleMachine::memo_get(uint64_t slot) {
  const auto found = memo_.find(slot);
  if (found == memo_.end()) fail("recalls object " + std::to_string(slot) + ", which is not there");
  push(found->second);
}

// --- opcodes -------------------------------------------------------------------------------------

void PickleMachine::run() {
  while (!stopped_) {
    opcode_position_ = position_;
    const uint8_t op = static_cast<uint8_t>(take(1)[0]);
    if (!step(op)) fail("opcode " + std::to_string(op) + " is not supported");
  }
  pickle_.size_bytes_ = position_;
}

bool PickleMachine::step(uint8_t op) {
  switch (op) {
    case PROTO: {
      const uint64_t version = take_uint(1);
      if (version < 2 || version > 5)
        fail("protocol " + std::to_string(version) + ", expected 2 to 5");
      return true;
    }
    case FRAME:
      take(8);
      return true;
    case STOP:
      pickle_.root_ = pop();
      if (!stack_.empty()) fail("objects are left on the stack");
      return stopped_ = true;
    case MARK:
      push(kMark);
      return true;
    case POP:
      if (stack_.empty()) fail("the stack is empty");
      stack_.pop_back();
      return true;
    case POP_MARK:
      pop_to_mark();
      return true;
    case DUP:
      push(top());
      return true;
    default:
      return step_number(op) || step_text(op) || step_container(op) || step_memo(op) ||
             step_object(op);
  }
}

bool PickleMachine::step_number(uint8_t op) {
  switch (op) {
    case NONE:
      push(add(Kind::null));
      return true;
    case NEWTRUE:
    case NEWFALSE: {
      Node node;
      node.kind = Kind::boolean;
      node.number = op == NEWTRUE ? 1 : 0;
      push(add(std::move(node)));
      return true;
    }
    case BININT:
      push(add_integer(static_cast<int32_t>(take_uint(4))));
      return true;
    case BININT1:
      push(add_integer(static_cast<int64_t>(take_uint(1))));
      return true;
    case BININT2:
      push(add_integer(static_cast<int64_t>(take_uint(2))));
      return true;
    case LONG1:
      push_long(take(static_cast<int64_t>(take_uint(1))));
      return true;
    case LONG4: {
      const uint64_t size = take_uint(4);
      if (size > 1024) fail("an integer of " + std::to_string(size) + " bytes");
      push_long(take(static_cast<int64_t>(size)));
      return true;
    }
    case BINFLOAT: {
      uint64_t bits = 0;
      for (char c : take(8)) bits = bits << 8 | static_cast<uint8_t>(c);
      Node node;
      node.kind = Kind::real;
      node.number = std::bit_cast<int64_t>(bits);
      push(add(std::move(node)));
      return true;
    }
    default:
      return false;
  }
}

// Little-endian two's complement; what does not fit 64 bits keeps its bytes.
void PickleMachine::push_long(std::string_view digits) {
  if (digits.size() > 8) {
    push(add(Kind::big_integer, digits));
    return;
  }
  uint64_t value = !digits.empty() && (digits.back() & 0x80) != 0 ? ~uint64_t{0} : 0;
  for (size_t i = digits.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(digits[i]);
  push(add_integer(static_cast<int64_t>(value)));
}

bool PickleMachine::step_text(uint8_t op) {
  switch (op) {
    case BINUNICODE:
      push(add(Kind::text, take(take_length(4))));
      return true;
    case SHORT_BINUNICODE:
      push(add(Kind::text, take(take_length(1))));
      return true;
    case BINUNICODE8:
      push(add(Kind::text, take(take_length(8))));
      return true;
    case BINSTRING:
      push(add(Kind::text, take(take_length(4))));
      return true;
    case SHORT_BINSTRING:
      push(add(Kind::text, take(take_length(1))));
      return true;
    case BINBYTES:
      push(add(Kind::bytes, take(take_length(4))));
      return true;
    case SHORT_BINBYTES:
      push(add(Kind::bytes, take(take_length(1))));
      return true;
    case BINBYTES8:
    case BYTEARRAY8:
      push(add(Kind::bytes, take(take_length(8))));
      return true;
    default:
      return false;
  }
}

void PickleMachine::push_tuple(size_t count) {
  Node node;
  node.kind = Kind::tuple;
  count_entries(count);
  for (size_t i = 0; i < count; ++i) node.items.insert(node.items.begin(), pop());
  push(add(std::move(node)));
}

bool PickleMachine::step_container(uint8_t op) {
  Node node;
  switch (op) {
    case EMPTY_LIST:
      push(add(Kind::list));
      return true;
    case EMPTY_DICT:
      push(add(Kind::dict));
      return true;
    case EMPTY_SET:
      push(add(Kind::set));
      return true;
    case EMPTY_TUPLE:
      push(add(Kind::tuple));
      return true;
    case TUPLE1:
      push_tuple(1);
      return true;
    case TUPLE2:
      push_tuple(2);
      return true;
    case TUPLE3:
      push_tuple(3);
      return true;
    case TUPLE:
    case LIST:
    case FROZENSET:
      node.kind = op == TUPLE ? Kind::tuple : op == LIST ? Kind::list : Kind::set;
      node.items = pop_to_mark();
      count_entries(node.items.size());
      push(add(std::move(node)));
      return true;
    case DICT: {
      const Items pairs = pop_to_mark();
      push(add(Kind::dict));
      set_items(pairs);
      return true;
    }
    case APPEND:
      append({pop()});
      return true;
    case APPENDS:
      append(pop_to_mark());
      return true;
    case ADDITEMS: {
      const Items items = pop_to_mark();
      Node& set = at(top());
      if (set.kind != Kind::set) fail("adds to something that is not a set");
      count_entries(items.size());
      set.items.insert(set.items.end(), items.begin(), items.end());
      return true;
    }
    case SETITEM: {
      const int32_t value = pop();
      const int32_t key = pop();
      set_items({key, value});
      return true;
    }
    case SETITEMS:
      set_items(pop_to_mark());
      return true;
    default:
      return false;
  }
}

void PickleMachine::append(const Items& items) {
  Node& list = at(top());
  if (list.kind != Kind::list) fail("appends to something that is not a list");
  count_entries(items.size());
  list.items.insert(list.items.end(), items.begin(), items.end());
}

void PickleMachine::set_items(const Items& pairs) {
  Node& dict = at(top());
  if (dict.kind != Kind::dict) fail("sets items of something that is not a dict");
  if (pairs.size() % 2 != 0) fail("a key without a value");
  count_entries(pairs.size());
  dict.items.insert(dict.items.end(), pairs.begin(), pairs.end());
}

bool PickleMachine::step_memo(uint8_t op) {
  switch (op) {
    case BINPUT:
      memo_put(take_uint(1));
      return true;
    case LONG_BINPUT:
      memo_put(take_uint(4));
      return true;
    case MEMOIZE:
      memo_put(memo_.size());
      return true;
    case BINGET:
      memo_get(take_uint(1));
      return true;
    case LONG_BINGET:
      memo_get(take_uint(4));
      return true;
    default:
      return false;
  }
}

bool PickleMachine::step_object(uint8_t op) {
  switch (op) {
    case GLOBAL: {
      const std::string_view module = take_line();
      import(module, take_line());
      return true;
    }
    case STACK_GLOBAL: {
      const int32_t name = pop();
      const int32_t module = pop();
      if (at(name).kind != Kind::text || at(module).kind != Kind::text)
        fail("imports something that is not a name");
      import(at(module).text, at(name).text);
      return true;
    }
    case REDUCE:
    case NEWOBJ: {
      const int32_t arguments = pop();
      call(pop(), arguments);
      return true;
    }
    case NEWOBJ_EX: {
      const int32_t keywords = pop();
      const int32_t arguments = pop();
      const int32_t callable = pop();
      if (at(keywords).kind != Kind::dict) fail("calls with keywords that are not a dict");
      call(callable, arguments);
      add_state(at(top()), keywords);
      return true;
    }
    case BUILD:
      build();
      return true;
    case BINPERSID:
      push_storage(pop());
      return true;
    default:
      return false;
  }
}

// State is kept separately, not merged into the object: a file can set one large state on many
// objects, which must not take memory for each.
void PickleMachine::build() {
  int32_t state = pop();
  Node& object = at(top());
  if (object.kind == Kind::bytes || object.kind == Kind::tensor) return;  // BytesIO, tensor state
  if (object.kind != Kind::object && object.kind != Kind::dict)
    fail("sets the state of something that is not an object");
  if (at(state).kind == Kind::tuple && at(state).items.size() == 2 &&
      at(at(state).items[1]).kind == Kind::dict) {
    add_state(object, at(state).items[1]);
    state = at(state).items[0];
  }
  add_state(object, state);
}

void PickleMachine::add_state(Node& object, int32_t state) {
  budget().spend(kEntryBytes);
  if (object.states < 0) {
    budget().spend(static_cast<int64_t>(2 * sizeof(Items)));
    object.states = static_cast<int32_t>(pickle_.states_.size());
    pickle_.states_.emplace_back();
  }
  pickle_.states_[static_cast<size_t>(object.states)].push_back(state);
}

}  // namespace convert
