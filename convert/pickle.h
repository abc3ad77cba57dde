// SPDX-License-Identifier: MIT
// Python pickles as data. The machine knows the opcodes that torch.save and Megatron's arguments
// use and executes nothing: an import is a name, a call is a node that holds its arguments, and
// only a fixed table of harmless calls (OrderedDict, Namespace, torch's tensor rebuilders, ...) is
// interpreted. Not here: storages and their bytes (torch_file.h). Nodes are in one arena and are
// read through `Value`, a pointer and an index. Source: docs/format/torch-file.5.md; CPython's
// pickletools.py; torch/_weights_only_unpickler.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/budget.h"

namespace convert {

/// A tensor as its pickle describes it: a strided view of one storage.
struct PickledTensor {
  std::string dtype;             ///< safetensors' spelling: "F32", "BF16", ...
  std::string storage_key;       ///< name of the record that holds the bytes
  int64_t storage_elements = 0;  ///< of `dtype`
  int64_t offset = 0;            ///< first element of the view
  std::vector<int64_t> shape;    ///< {} is a scalar
  std::vector<int64_t> stride;   ///< elements; same length as shape; never negative

  /// Elements of the view.
  int64_t elements() const noexcept;
  /// Whether the view's elements are row-major without gaps.
  bool contiguous() const noexcept;
};

/// Kinds of nodes. `absent`: not found. `object`: an instance of a class that is not interpreted;
/// `global`: an imported name.
enum class Kind : uint8_t {
  absent,
  null,
  boolean,
  integer,
  big_integer,
  real,
  text,
  bytes,
  list,
  tuple,
  set,
  dict,
  tensor,
  storage,
  dtype,
  global,
  object,
};

class Pickle;

/// A reference to one node, or to nothing; cheap to copy. Valid as long as its Pickle. item, key,
/// value and tensor throw if the node has no such thing; is, integer, text, size and find return an
/// empty result. Searching dicts is charged to the file's budget, and throws FormatError when it is
/// exceeded.
class Value {
 public:
  Value() = default;
  Value(const Pickle* pickle, int32_t index) : pickle_(pickle), index_(index) {}

  Kind kind() const noexcept;
  bool is(Kind kind) const noexcept { return this->kind() == kind; }
  /// False for a Value that find() or attribute() did not find.
  explicit operator bool() const noexcept { return index_ >= 0; }

  /// Integer, or a boolean as 0 and 1; nothing for another kind.
  std::optional<int64_t> integer() const noexcept;
  /// Real, or an integer as real.
  std::optional<double> real() const noexcept;
  /// Characters of a text, bytes of a bytes node, "module.name" of a global, dtype ("BF16") or
  /// object (its class); empty otherwise.
  std::string_view text() const noexcept;

  /// Number of items of a list, tuple or set, of pairs of a dict, of arguments of an object; else
  /// 0.
  int64_t size() const noexcept;
  /// Item `i` of a list, tuple, set or object's arguments; key or value of pair `i` of a dict.
  /// Errors: indexed::FormatError where `i` is not in 0..size()-1, or the node of another kind.
  Value item(int64_t i) const;
  Value key(int64_t i) const;
  Value value(int64_t i) const;
  /// The value under a text key of a dict; the last one where the file repeats the key.
  Value find(std::string_view key) const;
  /// Attribute `name` of an object or OrderedDict (set by BUILD), else find(name).
  Value attribute(std::string_view name) const;
  /// The state that BUILD set last, a dict or a tuple; absent if none.
  Value state() const noexcept;

  /// The tensor of a tensor node. Errors: indexed::FormatError for any other kind.
  const PickledTensor& tensor() const;

 private:
  [[noreturn]] void fail(const std::string& wanted) const;
  Value child(int64_t i, int64_t count, const char* what) const;

  const Pickle* pickle_ = nullptr;
  int32_t index_ = -1;
};

/// One pickle, read.
class Pickle {
 public:
  /// Reads the pickle at the start of `bytes`, up to its STOP. `budget` is the file's; without one
  /// the pickle is a file of its own.
  /// Errors: indexed::FormatError "path: what: why" for an opcode that is not supported, a broken
  /// stream, a class that only a hostile file imports (os, subprocess, eval, ...), a tensor whose
  /// view leaves its storage, more than the limits (10 million nodes, 64 MiB of one text), or more
  /// than the budget.
  Pickle(std::span<const std::byte> bytes, const std::string& path,
         std::shared_ptr<Budget> budget = nullptr);

  Value root() const noexcept { return Value(this, root_); }
  const std::string& path() const noexcept { return path_; }
  /// The budget for reading the rest of the file.
  Budget& budget() const noexcept { return *budget_; }
  /// Bytes read, STOP included.
  int64_t size_bytes() const noexcept { return size_bytes_; }
  /// Classes that were not interpreted, each once, in order: "module.Class".
  const std::vector<std::string>& foreign_classes() const noexcept { return foreign_; }
  /// Every tensor of the file in order of appearance.
  const std::vector<PickledTensor>& tensors() const noexcept { return tensors_; }

  Pickle(const Pickle&) = delete;
  Pickle& operator=(const Pickle&) = delete;

 private:
  friend class Value;
  friend class PickleMachine;

  struct Node {
    Kind kind = Kind::null;
    int32_t states = -1;     ///< index in states_ of BUILD's argument; -1: none
    int32_t arguments = -1;  ///< object: the tuple it was called with; -1: none
    int64_t number = 0;      ///< integer, boolean, bits of a real, index into tensors_ or storages_
    std::string text;
    std::vector<int32_t> items;  ///< dict: key, value, key, value, ...
  };
  struct Storage {
    std::string dtype;
    std::string key;
    int64_t elements = 0;
    int64_t offset = 0;  ///< of a legacy storage view, in elements of the whole
    bool untyped = false;
  };

  const Node& node(int32_t i) const noexcept { return nodes_[static_cast<size_t>(i)]; }
  const std::vector<int32_t>& children(int32_t i) const noexcept;
  const std::vector<int32_t>& states(int32_t i) const noexcept;

  std::string path_;
  std::shared_ptr<Budget> budget_;
  std::deque<Node> nodes_;                    // nodes keep their addresses while others are added
  std::vector<std::vector<int32_t>> states_;  // in order
  std::vector<PickledTensor> tensors_;
  std::vector<Storage> storages_;
  std::vector<std::string> foreign_;
  int32_t root_ = -1;
  int64_t size_bytes_ = 0;
};

/// Safetensors' name for torch's "float32", "bfloat16", ...; empty when there is none.
std::string_view dtype_from_torch(std::string_view torch_name) noexcept;

}  // namespace convert
