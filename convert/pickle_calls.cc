// SPDX-License-Identifier: MIT
// The meaning of imports and calls in a pickle. There are three kinds: those that only a hostile
// file has are errors; a fixed table of harmless ones (containers, paths, numpy scalars, torch's
// tensor rebuilders) is evaluated here, on data; every other becomes an inert node with its class
// name and its arguments. Nothing is looked up in any library and nothing is run.
// Source: docs/format/torch-file.5.md; torch/_utils.py and torch/storage.py for the rebuilders.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "convert/pickle_machine.h"
#include "trainer/checkpoint/safetensors.h"

namespace convert {
namespace {

constexpr size_t kMaxName = 4096;  // of a module, a class, a storage

struct NamePair {
  std::string_view from;
  std::string_view to;
};

constexpr NamePair kStorageDTypes[] = {
    {"DoubleStorage", "F64"},    {"FloatStorage", "F32"},        {"HalfStorage", "F16"},
    {"BFloat16Storage", "BF16"}, {"LongStorage", "I64"},         {"IntStorage", "I32"},
    {"ShortStorage", "I16"},     {"CharStorage", "I8"},          {"ByteStorage", "U8"},
    {"BoolStorage", "BOOL"},     {"ComplexFloatStorage", "C64"}, {"ComplexDoubleStorage", "C128"},
    {"UntypedStorage", "U8"},
};

constexpr NamePair kTorchDTypes[] = {
    {"float64", "F64"},
    {"double", "F64"},
    {"float32", "F32"},
    {"float", "F32"},
    {"float16", "F16"},
    {"half", "F16"},
    {"bfloat16", "BF16"},
    {"int64", "I64"},
    {"long", "I64"},
    {"int32", "I32"},
    {"int", "I32"},
    {"int16", "I16"},
    {"short", "I16"},
    {"int8", "I8"},
    {"uint8", "U8"},
    {"uint16", "U16"},
    {"uint32", "U32"},
    {"uint64", "U64"},
    {"bool", "BOOL"},
    {"complex64", "C64"},
    {"complex128", "C128"},
    {"float8_e4m3fn", "F8_E4M3"},
    {"float8_e5m2", "F8_E5M2"},
    {"float8_e8m0fnu", "F8_E8M0"},
    {"float8_e4m3fnuz", "F8_E4M3FNUZ"},
    {"float8_e5m2fnuz", "F8_E5M2FNUZ"},
};

// Modules that only a hostile checkpoint imports.
constexpr std::string_view kHostileModules[] = {
    "os",
    "posix",
    "nt",
    "sys",
    "subprocess",
    "shutil",
    "socket",
    "ctypes",
    "_ctypes",
    "importlib",
    "imp",
    "runpy",
    "pty",
    "commands",
    "code",
    "codeop",
    "webbrowser",
    "pickle",
    "_pickle",
    "marshal",
    "pdb",
    "bdb",
    "timeit",
    "cProfile",
    "profile",
    "trace",
    "pip",
    "site",
    "inspect",
    "urllib",
    "http",
    "requests",
    "operator",
    "_operator",
    "tempfile",
    "asyncio",
    "pkgutil",
    "linecache",
    "zipimport",
    "venv",
    "distutils",
    "setuptools",
    "ensurepip",
    "doctest",
    "smtplib",
    "ftplib",
    "telnetlib",
    "cffi",
    "numpy.testing",
    "numpy.f2py",
    "torch.hub",
    "torch.serialization",
    "torch.utils.cpp_extension",
    "torch.utils._config_module",
    "torch.jit",
    "torch._inductor",
};

constexpr std::string_view kHarmlessBuiltins[] = {
    "dict",  "list",    "tuple",     "set",  "frozenset", "int",    "float",
    "str",   "bytes",   "bytearray", "bool", "complex",   "object", "slice",
    "range", "getattr", "NoneType",  "long", "unicode",
};

template <size_t N>
std::string_view look_up(const NamePair (&table)[N], std::string_view name) {
  for (const NamePair& row : table)
    if (row.from == name) return row.to;
  return {};
}

template <size_t N>
bool contains(const std::string_view (&table)[N], std::string_view name) {
  return std::find(std::begin(table), std::end(table), name) != std::end(table);
}

bool is_hostile(std::string_view module, std::string_view name) {
  if (module == "builtins")
    return !contains(kHarmlessBuiltins, name) && !name.ends_with("Error") &&
           !name.ends_with("Exception");
  if (module == "types") return name != "SimpleNamespace" && name != "NoneType";
  if (module == "torch.serialization" && name == "_get_layout") return false;  // a table's entry
  for (size_t dot = module.find('.');; dot = module.find('.', dot + 1)) {
    if (contains(kHostileModules, module.substr(0, dot))) return true;
    if (dot == std::string_view::npos) return false;
  }
}

int64_t element_bytes(std::string_view dtype) {
  return dtype == "C128" ? 16 : trainer::safetensors_dtype_bits(dtype) / 8;
}

bool is_rebuilder(std::string_view what) {
  return what == "torch._utils._rebuild_tensor_v2" || what == "torch._utils._rebuild_tensor_v3" ||
         what == "torch._utils._rebuild_tensor" || what == "torch._utils._rebuild_parameter" ||
         what == "torch._utils._rebuild_parameter_with_state";
}

// The bytes of a string whose characters are all below 256 (protocol 2's form of bytes).
bool latin1_bytes(std::string_view utf8, std::string& out) {
  for (size_t i = 0; i < utf8.size(); ++i) {
    const uint8_t c = static_cast<uint8_t>(utf8[i]);
    if (c < 0x80) {
      out += utf8[i];
      continue;
    }
    if ((c != 0xc2 && c != 0xc3) || ++i == utf8.size()) return false;
    out += static_cast<char>((c & 3) << 6 | (static_cast<uint8_t>(utf8[i]) & 0x3f));
  }
  return true;
}

}  // namespace

std::string_view dtype_from_torch(std::string_view torch_name) noexcept {
  return look_up(kTorchDTypes, torch_name);
}

void PickleMachine::import(std::string_view module, std::string_view name) {
  if (module.size() > kMaxName || name.size() > kMaxName)
    fail("an import of a name of " + std::to_string(std::max(module.size(), name.size())) +
         " bytes");
  // The table of hostile modules is searched for each part of the name.
  budget().spend(static_cast<int64_t>(16 * (module.size() + name.size())));
  if (module == "__builtin__") module = "builtins";
  if (module == "copy_reg") module = "copyreg";
  const std::string whole = std::string(module) + "." + std::string(name);
  if (is_hostile(module, name)) fail("imports " + whole + ": refused as hostile, nothing was run");
  if (module == "torch") {
    const std::string_view dtype = dtype_from_torch(name);
    if (!dtype.empty()) {
      push(add(Kind::dtype, dtype));
      return;
    }
  }
  push(add(Kind::global, whole));
}

void PickleMachine::call(int32_t callable, int32_t arguments) {
  if (at(callable).kind != Kind::global) fail("calls something that is not an import");
  if (at(arguments).kind != Kind::tuple) fail("calls with arguments that are not a tuple");
  const std::string_view what = at(callable).text;
  if (call_tensor(what, arguments) || call_container(what, arguments) ||
      call_plain(what, arguments))
    return;
  call_foreign(callable, arguments);
}

// The object refers to its arguments' tuple, which many objects may share.
void PickleMachine::call_foreign(int32_t callable, int32_t arguments) {
  const std::string& name = at(callable).text;
  if (name != "argparse.Namespace" && name != "types.SimpleNamespace" &&
      !foreign_seen_.contains(name)) {
    budget().spend(static_cast<int64_t>(2 * (sizeof(std::string) + name.size())));
    foreign_seen_.insert(name);
    pickle_.foreign_.push_back(name);
  }
  const int32_t object = add(Kind::object, name);
  at(object).arguments = arguments;
  push(object);
}

bool PickleMachine::call_container(std::string_view what, int32_t arguments) {
  const Items& given = at(arguments).items;
  if (what == "collections.OrderedDict" || what == "collections.defaultdict" ||
      what == "collections.Counter" || what == "builtins.dict") {
    const size_t first = what == "collections.defaultdict" ? 1 : 0;  // the factory is ignored
    push(add(Kind::dict));
    if (given.size() <= first) return true;
    const Node& source = at(given[first]);
    if (source.kind == Kind::dict) {
      set_items(source.items);
      return true;
    }
    if (source.kind != Kind::list && source.kind != Kind::tuple) fail("builds a dict of no pairs");
    count_entries(2 * source.items.size());
    Items pairs;
    for (const int32_t pair : source.items) {
      const Node& two = at(pair);
      if ((two.kind != Kind::tuple && two.kind != Kind::list) || two.items.size() != 2)
        fail("builds a dict of no pairs");
      pairs.insert(pairs.end(), two.items.begin(), two.items.end());
    }
    set_items(pairs);
    return true;
  }
  const bool set = what == "builtins.set" || what == "builtins.frozenset";
  const bool tuple = what == "torch.Size" || what == "builtins.tuple";
  if (!set && !tuple && what != "builtins.list") return false;
  Node node;
  node.kind = set ? Kind::set : tuple ? Kind::tuple : Kind::list;
  if (!given.empty()) {
    const Node& source = at(given[0]);
    if (source.kind != Kind::list && source.kind != Kind::tuple && source.kind != Kind::set)
      fail("builds a " + std::string(what) + " of something that is no list");
    count_entries(source.items.size());
    node.items = source.items;
  }
  push(add(std::move(node)));
  return true;
}

// Path("a", "b"), device("cuda", 3): the texts and numbers, joined.
void PickleMachine::join_path(const Items& parts, char separator) {
  std::string joined;
  for (const int32_t part : parts) {
    const Node& one = at(part);
    const std::string number = one.kind == Kind::integer ? std::to_string(one.number) : "";
    const std::string_view text = number.empty() ? std::string_view(one.text) : number;
    budget().spend(static_cast<int64_t>(text.size() + 1));
    if (!joined.empty() && joined.back() != '/') joined += separator;
    joined += text;
  }
  push(add(Kind::text, joined));
}

// Calls whose result is a text, bytes or a number.
bool PickleMachine::call_plain(std::string_view what, int32_t arguments) {
  const Items& given = at(arguments).items;
  const auto is = [&](size_t i, Kind kind) {
    return given.size() > i && at(given[i]).kind == kind;
  };
  if (what == "_codecs.encode") {
    std::string raw;
    if (is(0, Kind::text)) budget().spend(static_cast<int64_t>(at(given[0]).text.size()));
    if (!is(0, Kind::text) || !latin1_bytes(at(given[0]).text, raw))
      fail("encodes something that is not latin-1 text");
    push(add(Kind::bytes, raw));
    return true;
  }
  if (what == "builtins.bytes" || what == "builtins.bytearray" || what == "_io.BytesIO") {
    push(add(Kind::bytes,
             is(0, Kind::bytes) ? std::string_view(at(given[0]).text) : std::string_view()));
    return true;
  }
  if (what.starts_with("pathlib.") || what == "torch.device") {
    join_path(given, what == "torch.device" ? ':' : '/');
    return true;
  }
  if (what == "builtins.getattr") {
    if (given.size() != 2 || !is(0, Kind::global) || !is(1, Kind::text) ||
        at(given[1]).text.size() > kMaxName)
      fail("calls getattr on something that is not an enumeration");
    push(add(Kind::object, at(given[0]).text + "." + at(given[1]).text));
    return true;
  }
  if (what == "numpy.core.multiarray.scalar" || what == "numpy._core.multiarray.scalar") {
    push_numpy_scalar(given);
    return true;
  }
  return false;
}

// The number of `raw`, little-endian bytes of numpy's type ('i8', 'f4', 'b1'); nothing if they do
// not match.
std::optional<PickleMachine::Node> PickleMachine::numpy_number(std::string_view type,
                                                               std::string_view raw) {
  if (type.size() != 2 || raw.empty() || raw.size() > 8 ||
      raw.size() != static_cast<size_t>(type[1] - '0'))
    return {};
  uint64_t bits = 0;
  for (size_t i = raw.size(); i-- > 0;) bits = bits << 8 | static_cast<uint8_t>(raw[i]);
  const unsigned unused = 64 - 8 * static_cast<unsigned>(raw.size());
  Node node;
  node.kind = Kind::integer;
  if (type[0] == 'i') {
    node.number = static_cast<int64_t>(bits << unused) >> unused;
  } else if ((type[0] == 'u' || type[0] == 'b') && bits <= static_cast<uint64_t>(INT64_MAX)) {
    node.number = static_cast<int64_t>(bits);
  } else if (type == "f8" || type == "f4") {
    const double real = type == "f8" ? std::bit_cast<double>(bits)
                                     : std::bit_cast<float>(static_cast<uint32_t>(bits));
    node.kind = Kind::real;
    node.number = std::bit_cast<int64_t>(real);
  } else {
    return {};
  }
  return node;
}

// scalar(dtype('i8'), bytes): a number when type and bytes agree, else an inert node.
void PickleMachine::push_numpy_scalar(const Items& arguments) {
  if (arguments.size() == 2 && at(arguments[0]).kind == Kind::object &&
      at(arguments[0]).text == "numpy.dtype" && at(arguments[1]).kind == Kind::bytes) {
    const Items& of_type = pickle_.children(arguments[0]);
    if (!of_type.empty())
      if (std::optional<Node> number = numpy_number(at(of_type[0]).text, at(arguments[1]).text)) {
        push(add(std::move(*number)));
        return;
      }
  }
  push(add(Kind::object, "numpy.scalar"));
}

// --- tensors -------------------------------------------------------------------------------------

bool PickleMachine::call_tensor(std::string_view what, int32_t arguments) {
  std::string_view function = what;
  if (what == "torch._tensor._rebuild_from_type_v2") {
    const Items& all = at(arguments).items;
    if (all.size() < 3 || at(all[0]).kind != Kind::global || !is_rebuilder(at(all[0]).text) ||
        at(all[2]).kind != Kind::tuple)
      fail("rebuilds a tensor by something that does not rebuild tensors");
    function = at(all[0]).text;
    arguments = all[2];
  }
  if (!is_rebuilder(function)) return false;
  const Items& given = at(arguments).items;
  if (function.find("_parameter") != std::string_view::npos) {
    if (given.empty() || at(given[0]).kind != Kind::tensor) fail("a parameter that is no tensor");
    push(given[0]);
    return true;
  }
  std::string_view dtype;
  if (function.ends_with("_v3")) {
    if (given.size() < 7 || at(given[6]).kind != Kind::dtype) fail("a tensor without a dtype");
    dtype = at(given[6]).text;
  }
  push_tensor(given, dtype);
  return true;
}

// The persistent id ('storage', class, key, location, elements[, view]).
void PickleMachine::push_storage(int32_t id) {
  const Items& fields = at(id).items;
  if (at(id).kind != Kind::tuple || fields.size() < 5 || at(fields[0]).kind != Kind::text ||
      at(fields[0]).text != "storage" || at(fields[1]).kind != Kind::global ||
      at(fields[2]).kind != Kind::text)
    fail("a persistent id that is no storage");
  const std::string_view type = at(fields[1]).text;
  const size_t dot = type.rfind('.');
  const std::string_view module = type.substr(0, dot);
  const std::string_view dtype = look_up(kStorageDTypes, type.substr(dot + 1));
  if (dtype.empty() || (module != "torch" && module != "torch.cuda" && module != "torch.storage"))
    fail("storage class " + std::string(type) + " is not supported");
  if (at(fields[2]).text.size() > kMaxName) fail("a storage of a name of more than 4096 bytes");
  budget().spend(static_cast<int64_t>(sizeof(Pickle::Storage) + at(fields[2]).text.size()));
  Pickle::Storage storage;
  storage.dtype = dtype;
  storage.untyped = type.ends_with("UntypedStorage");
  storage.key = at(fields[2]).text;
  storage.elements = integer(fields[4], "storage size");
  if (fields.size() > 5 && at(fields[5]).kind == Kind::tuple) {  // legacy: (key, offset, elements)
    const Items& view = at(fields[5]).items;
    if (view.size() != 3) fail("a storage view without its three fields");
    storage.offset = integer(view[1], "storage view offset");
    if (storage.offset > storage.elements ||
        integer(view[2], "storage view size") > storage.elements - storage.offset)
      fail("a storage view larger than its storage");
  }
  Node node;
  node.kind = Kind::storage;
  node.number = static_cast<int64_t>(pickle_.storages_.size());
  pickle_.storages_.push_back(std::move(storage));
  push(add(std::move(node)));
}

int64_t PickleMachine::integer(int32_t index, const char* what) {
  if (at(index).kind != Kind::integer || at(index).number < 0)
    fail(std::string(what) + " is not a number from 0 up");
  return at(index).number;
}

std::vector<int64_t> PickleMachine::integers(int32_t index, const char* what) {
  if (at(index).kind != Kind::tuple && at(index).kind != Kind::list)
    fail(std::string(what) + " is not a tuple");
  if (at(index).items.size() > 64) fail(std::string(what) + " has more than 64 dimensions");
  budget().spend(static_cast<int64_t>(sizeof(int64_t) * at(index).items.size()));
  std::vector<int64_t> values;
  for (const int32_t item : at(index).items) values.push_back(integer(item, what));
  return values;
}

void PickleMachine::push_tensor(const Items& arguments, std::string_view dtype) {
  if (arguments.size() < 4 || at(arguments[0]).kind != Kind::storage)
    fail("a tensor without a storage");
  const Pickle::Storage& storage = pickle_.storages_[static_cast<size_t>(at(arguments[0]).number)];
  budget().spend(static_cast<int64_t>(sizeof(PickledTensor) + storage.key.size()));
  PickledTensor tensor;
  tensor.dtype = dtype.empty() ? storage.dtype : std::string(dtype);
  tensor.storage_key = storage.key;
  tensor.storage_elements = storage.elements;
  if (storage.untyped) tensor.storage_elements /= element_bytes(tensor.dtype);
  if (__builtin_add_overflow(integer(arguments[1], "tensor offset"), storage.offset,
                             &tensor.offset))
    fail("tensor offset overflows");
  tensor.shape = integers(arguments[2], "tensor shape");
  tensor.stride = integers(arguments[3], "tensor stride");
  check_view(tensor);
  Node node;
  node.kind = Kind::tensor;
  node.number = static_cast<int64_t>(pickle_.tensors_.size());
  pickle_.tensors_.push_back(std::move(tensor));
  push(add(std::move(node)));
}

// Checks that the view is inside its storage, and that its elements can be counted and addressed in
// 64 bits.
void PickleMachine::check_view(const PickledTensor& tensor) const {
  if (tensor.shape.size() != tensor.stride.size())
    fail("a tensor whose shape and stride differ in length");
  int64_t last = tensor.offset;
  int64_t elements = 1;
  bool empty = false;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] == 0) {
      empty = true;
      continue;
    }
    int64_t step = 0;
    if (__builtin_mul_overflow(tensor.shape[i] - 1, tensor.stride[i], &step) ||
        __builtin_add_overflow(last, step, &last) ||
        __builtin_mul_overflow(elements, tensor.shape[i], &elements))
      fail("a tensor whose size overflows");
  }
  if (elements > int64_t{1} << 56) fail("a tensor whose size overflows");
  if (empty) return;
  if (last >= tensor.storage_elements)
    fail("a tensor that reaches element " + std::to_string(last) + " of a storage of " +
         std::to_string(tensor.storage_elements));
  // A stride of 0 repeats one element; the view may not have more elements than the storage.
  if (elements > std::max<int64_t>(tensor.storage_elements, 1))
    fail("a tensor of more elements than its storage has");
}

}  // namespace convert
