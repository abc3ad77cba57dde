// SPDX-License-Identifier: MIT
// tensor_source.h: sources derived from sources, and the float formats.
#include "convert/tensor_source.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>

#include "libindexed/format.h"
#include "trainer/checkpoint/safetensors.h"

namespace convert {
namespace {

using indexed::FormatError;

[[noreturn]] void fail(const TensorSource& source, const std::string& why) {
  throw FormatError(source.place + ": " + why);
}

float from_half(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = bits >> 10 & 31U, mantissa = bits & 0x3ffU;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000U | mantissa << 13);
  if (exponent == 0) {
    const float value = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

// Rounds to nearest even; values too large become infinite, as in IEEE 754.
uint16_t to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000U);
  const uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<uint16_t>(sign | 0x7e00U);
  if (magnitude >= 0x477ff000U) return static_cast<uint16_t>(sign | 0x7c00U);
  if (magnitude < 0x38800000U) {  // below the smallest normal: a multiple of 2^-24
    const float scaled = std::bit_cast<float>(magnitude) * 16777216.0F;
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(scaled)));
  }
  const uint32_t rounded = magnitude + 0xfffU + (magnitude >> 13 & 1U);
  return static_cast<uint16_t>(sign | static_cast<uint16_t>((rounded - 0x38000000U) >> 13));
}

uint16_t to_bfloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<uint16_t>(bits >> 16 | 0x40U);
  return static_cast<uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

template <class T>
T load_as(const std::byte* data, int64_t i) {
  T value;
  std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
void store_as(std::byte* data, int64_t i, T value) {
  std::memcpy(data + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

bool is_float(std::string_view dtype) {
  return dtype == "F32" || dtype == "F16" || dtype == "BF16" || dtype == "F64";
}

using Getter = double (*)(const std::byte* data, int64_t i);
using Setter = void (*)(std::byte* data, int64_t i, double value);

double get_f64(const std::byte* data, int64_t i) { return load_as<double>(data, i); }
double get_f32(const std::byte* data, int64_t i) { return load_as<float>(data, i); }
double get_f16(const std::byte* data, int64_t i) { return from_half(load_as<uint16_t>(data, i)); }
double get_bf16(const std::byte* data, int64_t i) {
  return std::bit_cast<float>(static_cast<uint32_t>(load_as<uint16_t>(data, i)) << 16);
}
void set_f64(std::byte* data, int64_t i, double x) { store_as(data, i, x); }
void set_f32(std::byte* data, int64_t i, double x) { store_as(data, i, static_cast<float>(x)); }
void set_f16(std::byte* data, int64_t i, double x) {
  store_as(data, i, to_half(static_cast<float>(x)));
}
void set_bf16(std::byte* data, int64_t i, double x) {
  store_as(data, i, to_bfloat(static_cast<float>(x)));
}

// One function pointer per tensor instead of a comparison of names per element.
Getter getter(std::string_view dtype) {
  return dtype == "F64" ? get_f64 : dtype == "F32" ? get_f32 : dtype == "F16" ? get_f16 : get_bf16;
}
Setter setter(std::string_view dtype) {
  return dtype == "F64" ? set_f64 : dtype == "F32" ? set_f32 : dtype == "F16" ? set_f16 : set_bf16;
}

}  // namespace

int64_t TensorSource::element_bytes() const noexcept {
  return trainer::safetensors_dtype_bits(dtype) / 8;
}

int64_t TensorSource::elements() const noexcept {
  int64_t count = 1;
  for (int64_t n : shape) count *= n;
  return count;
}

int64_t TensorSource::row_bytes() const noexcept {
  int64_t count = element_bytes();
  for (size_t i = 1; i < shape.size(); ++i) count *= shape[i];
  return count;
}

std::vector<std::byte> TensorSource::load() const {
  std::vector<std::byte> out(static_cast<size_t>(bytes()));
  if (!out.empty()) read_rows(0, rows(), out.data());
  return out;
}

TensorSource slice_rows(const TensorSource& source, int64_t first, int64_t count) {
  if (source.shape.empty() || first < 0 || count < 0 || first > source.rows() - count)
    fail(source, "rows " + std::to_string(first) + " to " + std::to_string(first + count) + " of " +
                     std::to_string(source.rows()) + " do not exist");
  TensorSource result = source;
  result.shape[0] = count;
  result.read_rows = [inner = source.read_rows, first](int64_t begin, int64_t n, std::byte* out) {
    inner(first + begin, n, out);
  };
  return result;
}

TensorSource pick_rows(const TensorSource& source, int64_t count,
                       std::function<int64_t(int64_t)> origin) {
  if (source.shape.empty()) fail(source, "a scalar has no rows");
  TensorSource result = source;
  result.shape[0] = count;
  result.read_rows = [inner = source.read_rows, origin = std::move(origin),
                      row = source.row_bytes()](int64_t begin, int64_t n, std::byte* out) {
    for (int64_t i = 0; i < n;) {  // consecutive rows at once
      const int64_t from = origin(begin + i);
      int64_t run = 1;
      while (i + run < n && origin(begin + i + run) == from + run) ++run;
      inner(from, run, out + i * row);
      i += run;
    }
  };
  return result;
}

TensorSource join_rows(std::vector<TensorSource> parts) {
  if (parts.size() == 1) return parts[0];
  TensorSource result = parts.at(0);
  if (result.shape.empty()) fail(result, "a scalar has no rows");
  result.shape[0] = 0;
  for (const TensorSource& part : parts) {
    if (part.dtype != result.dtype || part.shape.size() != result.shape.size() ||
        !std::equal(part.shape.begin() + 1, part.shape.end(), result.shape.begin() + 1))
      fail(part, "does not fit under " + result.place);
    result.shape[0] += part.shape[0];
    result.by_rows = result.by_rows && part.by_rows;
  }
  result.read_rows = [parts = std::move(parts)](int64_t first, int64_t count, std::byte* out) {
    for (const TensorSource& part : parts) {
      const int64_t n = std::min(count, part.rows() - first);
      if (n > 0) {
        part.read_rows(first, n, out);
        out += n * part.row_bytes();
        count -= n;
        first = 0;
      } else {
        first -= part.rows();
      }
      if (count == 0) return;
    }
  };
  return result;
}

TensorSource join_columns(std::vector<TensorSource> parts) {
  if (parts.size() == 1) return parts[0];
  TensorSource result = parts.at(0);
  result.shape.resize(2);
  result.shape[1] = 0;
  for (const TensorSource& part : parts) {
    if (part.dtype != result.dtype || part.shape.size() != 2 || part.shape[0] != result.shape[0])
      fail(part, "does not fit beside " + result.place);
    result.shape[1] += part.shape[1];
    result.by_rows = result.by_rows && part.by_rows;
  }
  const int64_t stride = result.row_bytes();
  result.read_rows = [parts = std::move(parts), stride](int64_t first, int64_t count,
                                                        std::byte* out) {
    int64_t column = 0;
    for (const TensorSource& part : parts) {
      const int64_t width = part.row_bytes();
      std::vector<std::byte> rows(static_cast<size_t>(count * width));
      part.read_rows(first, count, rows.data());
      for (int64_t i = 0; i < count; ++i)
        std::memcpy(out + i * stride + column, rows.data() + i * width, static_cast<size_t>(width));
      column += width;
    }
  };
  return result;
}

TensorSource transpose(const TensorSource& source) {
  if (source.shape.size() != 2) fail(source, "is no matrix");
  TensorSource result = source;
  std::swap(result.shape[0], result.shape[1]);
  result.by_rows = false;
  result.read_rows = [source](int64_t first, int64_t count, std::byte* out) {
    constexpr int64_t kTile = 64;
    const std::vector<std::byte> all = source.load();
    const int64_t rows = source.shape[0], columns = source.shape[1];
    const int64_t size = source.element_bytes();
    for (int64_t c0 = first; c0 < first + count; c0 += kTile)
      for (int64_t r0 = 0; r0 < rows; r0 += kTile)
        for (int64_t c = c0; c < std::min(c0 + kTile, first + count); ++c)
          for (int64_t r = r0; r < std::min(r0 + kTile, rows); ++r)
            std::memcpy(out + ((c - first) * rows + r) * size,
                        all.data() + (r * columns + c) * size, static_cast<size_t>(size));
  };
  return result;
}

TensorSource convert_dtype(const TensorSource& source, const std::string& dtype) {
  if (source.dtype == dtype) return source;
  if (!is_float(source.dtype) || !is_float(dtype))
    fail(source, "dtype " + source.dtype + " is not converted to " + dtype);
  TensorSource result = source;
  result.dtype = dtype;
  result.read_rows = [source, dtype](int64_t first, int64_t count, std::byte* out) {
    std::vector<std::byte> rows(static_cast<size_t>(count * source.row_bytes()));
    source.read_rows(first, count, rows.data());
    const int64_t n = static_cast<int64_t>(rows.size()) / source.element_bytes();
    const Getter get = getter(source.dtype);
    const Setter set = setter(dtype);
    for (int64_t i = 0; i < n; ++i) set(out, i, get(rows.data(), i));
  };
  return result;
}

TensorSource add_one(const TensorSource& source) {
  if (!is_float(source.dtype)) fail(source, "is no float tensor");
  TensorSource result = source;
  result.read_rows = [source](int64_t first, int64_t count, std::byte* out) {
    source.read_rows(first, count, out);
    const int64_t n = count * source.row_bytes() / source.element_bytes();
    const Getter get = getter(source.dtype);
    const Setter set = setter(source.dtype);
    for (int64_t i = 0; i < n; ++i) set(out, i, get(out, i) + 1.0);
  };
  return result;
}

TensorSource zeros(const std::string& dtype, std::vector<int64_t> shape) {
  TensorSource result{dtype, std::move(shape), {}, "zeros"};
  result.read_rows = [row = result.row_bytes()](int64_t, int64_t count, std::byte* out) {
    std::memset(out, 0, static_cast<size_t>(count * row));
  };
  return result;
}

int64_t count_not_finite(const std::string& dtype, const std::vector<std::byte>& bytes) {
  const auto count = [&]<class T>(T exponent) {  // all exponent bits set: infinite or no number
    int64_t found = 0;
    const int64_t n = static_cast<int64_t>(bytes.size() / sizeof(T));
    for (int64_t i = 0; i < n; ++i) found += (load_as<T>(bytes.data(), i) & exponent) == exponent;
    return found;
  };
  if (dtype == "F32") return count(uint32_t{0x7f800000});
  if (dtype == "BF16") return count(uint16_t{0x7f80});
  if (dtype == "F16") return count(uint16_t{0x7c00});
  if (dtype == "F64") return count(uint64_t{0x7ff0000000000000});
  return 0;
}

std::vector<float> to_floats(std::string_view dtype, const std::byte* data, int64_t count) {
  if (!is_float(dtype)) throw FormatError("dtype " + std::string(dtype) + " is no float");
  std::vector<float> out(static_cast<size_t>(count));
  const Getter get = getter(dtype);
  for (int64_t i = 0; i < count; ++i)
    out[static_cast<size_t>(i)] = static_cast<float>(get(data, i));
  return out;
}

}  // namespace convert
