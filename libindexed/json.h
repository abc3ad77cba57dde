// SPDX-License-Identifier: MIT
// Json: small JSON documents of datasets: manifests, and the descriptions whose hash names a cache
// file. Written exactly as Python's json.dumps writes it, because Megatron hashes that text; read
// strictly, with a depth limit. Not for corpora (tools/stream/json_scan.h) and not for large
// documents: everything is in memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace indexed {

/// One JSON value; objects keep the order of insertion.
class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  Json() noexcept;  ///< null
  // Out of line: inlined copies of the variant cause false warnings in GCC 12.
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept;
  ~Json();
  Json(bool value);
  Json(int value) : Json(int64_t{value}) {}
  Json(int64_t value);
  Json(double value);
  Json(std::string value);
  Json(std::string_view value) : Json(std::string(value)) {}
  Json(const char* value) : Json(std::string(value)) {}
  Json(Array value);
  Json(Object value);

  /// Parses a text of RFC 8259; numbers without fraction and exponent that fit are integers.
  /// Errors: FormatError naming `path` and the byte.
  static Json parse(std::string_view text, const std::string& path);

  bool is_null() const noexcept { return std::holds_alternative<std::monostate>(value_); }
  const std::string* string() const noexcept { return std::get_if<std::string>(&value_); }
  const int64_t* integer() const noexcept { return std::get_if<int64_t>(&value_); }
  const Array* array() const noexcept { return std::get_if<Array>(&value_); }
  const Object* object() const noexcept { return std::get_if<Object>(&value_); }

  /// The member of this object, or null if this is not an object or has no such member.
  const Json* find(std::string_view key) const noexcept;

  /// Adds a member to this object (or to null, which becomes one).
  void set(std::string key, Json value);

  /// Python's json.dumps(value, indent=indent): ASCII only, floats by repr, members in order.
  std::string dump(int indent) const;

 private:
  void dump_to(std::string& out, int indent, int depth) const;

  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

/// Python's repr of a float: the shortest digits that read back the same, fixed between 1e-4 and
/// 1e16.
std::string python_float(double value);

}  // namespace indexed
