// SPDX-License-Identifier: MIT
// A tensor that is not in memory: its description, and how to read it. Readers make sources for
// their mapped files, the functions here derive sources from sources (selected rows, joined shards,
// transposed, another dtype), and a writer loads one at a time, so a conversion of any size has
// about two copies of the largest tensor in memory. Not here: which tensors a model has
// (canonical.h). Shapes are whole tensors, row-major; a row is everything under one index of the
// first dimension, and a scalar is one row. dtype is safetensors' spelling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace convert {

/// A tensor to be read later. Copies share their underlying file.
struct TensorSource {
  std::string dtype;
  std::vector<int64_t> shape;
  /// Writes rows first .. first + count - 1 to `out`. Errors: those of the file behind it.
  std::function<void(int64_t first, int64_t count, std::byte* out)> read_rows;
  /// Where it comes from, for messages: "model_optim_rng.pt: layers.0.mlp.dense_h_to_4h.weight".
  std::string place = {};
  /// False if every row needs the whole source in memory (transpose), so that a writer should
  /// request all rows at once.
  bool by_rows = true;

  int64_t rows() const noexcept { return shape.empty() ? 1 : shape[0]; }
  int64_t element_bytes() const noexcept;
  int64_t elements() const noexcept;
  int64_t row_bytes() const noexcept;
  int64_t bytes() const noexcept { return elements() * element_bytes(); }
  /// All of it. Errors: those of read_rows.
  std::vector<std::byte> load() const;
};

/// Rows first .. first + count - 1.
TensorSource slice_rows(const TensorSource& source, int64_t first, int64_t count);

/// `count` rows, of which row i is row origin(i) of the source.
TensorSource pick_rows(const TensorSource& source, int64_t count,
                       std::function<int64_t(int64_t)> origin);

/// The parts concatenated by rows. Errors: indexed::FormatError when dtype or row shape differ.
TensorSource join_rows(std::vector<TensorSource> parts);

/// Matrices side by side. Errors: indexed::FormatError when dtype or number of rows differ.
TensorSource join_columns(std::vector<TensorSource> parts);

/// A matrix with rows and columns exchanged. Reading takes memory for the whole source.
/// Errors: indexed::FormatError when it is no matrix.
TensorSource transpose(const TensorSource& source);

/// The same numbers in another float dtype (F32, F16, BF16, F64), rounded to nearest even.
/// Errors: indexed::FormatError for another dtype.
TensorSource convert_dtype(const TensorSource& source, const std::string& dtype);

/// Every element plus one, in the source's dtype: norms that are stored around zero.
TensorSource add_one(const TensorSource& source);

/// Zeros, for biases that a format requires and the model lacks, and for vocabulary padding.
TensorSource zeros(const std::string& dtype, std::vector<int64_t> shape);

/// How many elements are not finite, after loading all of it.
int64_t count_not_finite(const std::string& dtype, const std::vector<std::byte>& bytes);

/// `count` elements as fp32. Errors: indexed::FormatError for a dtype that is no float.
std::vector<float> to_floats(std::string_view dtype, const std::byte* data, int64_t count);

}  // namespace convert
