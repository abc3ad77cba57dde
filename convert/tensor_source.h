// SPDX-License-Identifier: MIT
// A tensor that is not in memory: what it is, and how to fill memory with it. Readers make sources
// over their mapped files, the functions here make sources out of sources (rows picked, shards
// joined, transposed, another dtype), and writers take them a block at a time (tensor_blocks.h), so
// a conversion of any size needs little memory. Sources remember which rows of which others they
// are made of: what is taken apart and put together again is the bytes that it was, and is written
// from where they lie. Which tensors a model has is canonical.h's.
// Shapes are whole tensors, row-major; a row is everything under one index of the first dimension,
// and a scalar is one row. dtype is safetensors' spelling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "convert/float_formats.h"

namespace convert {

/// Memory that grows and is not cleared: one thread's, used again for each block.
class Scratch {
 public:
  /// At least `bytes` of memory; what it held is lost when it grows.
  std::byte* of(int64_t bytes);

 private:
  std::unique_ptr<std::byte[]> memory_;
  int64_t bytes_ = 0;
};

/// A tensor's bytes where a file is mapped, one row behind the other.
struct MappedRows {
  const std::byte* data = nullptr;
  /// Compares bytes begin .. end - 1 with their checksums; empty where there are none. Any thread.
  /// Errors: indexed::FormatError when they are damaged.
  std::function<void(int64_t begin, int64_t end)> check = {};
  /// Tells the system that those bytes are not needed again soon. Any thread; may be empty.
  std::function<void(int64_t begin, int64_t end)> release = {};
};

/// A tensor to be read later. Copies share what they read from.
struct TensorSource {
  std::string dtype;
  std::vector<int64_t> shape;
  /// Writes rows first .. first + count - 1 to `out`. Any thread, several at a time. Errors: those
  /// of the file behind it.
  std::function<void(int64_t first, int64_t count, std::byte* out)> read_rows;
  /// Where it comes from, for messages: "model_optim_rng.pt: layers.0.mlp.dense_h_to_4h.weight".
  std::string place = {};

  int64_t rows() const noexcept { return shape.empty() ? 1 : shape[0]; }
  int64_t element_bytes() const noexcept;
  int64_t elements() const noexcept;
  int64_t row_bytes() const noexcept;
  int64_t bytes() const noexcept { return elements() * element_bytes(); }
  /// All of it. Errors: those of read_rows.
  std::vector<std::byte> load() const;
  /// The rows where they lie in a mapped file, one behind the other and checked; null where they do
  /// not. Errors: those of MappedRows::check.
  const std::byte* in_place(int64_t first, int64_t count) const;
  /// Bytes at .. at + size - 1: where they lie, or read into `scratch`, whose bytes they then are
  /// until it is used again. Errors: those of read_rows.
  std::span<const std::byte> block(int64_t at, int64_t size, Scratch& scratch) const;
  /// Tells the system that nothing of it is needed again soon.
  void release() const;
};

/// A source over a mapped file.
TensorSource mapped_source(const std::string& dtype, std::vector<int64_t> shape,
                           const std::string& place, MappedRows rows);

/// Rows first .. first + count - 1.
TensorSource slice_rows(const TensorSource& source, int64_t first, int64_t count);

/// `count` rows, of which row i is row origin(i) of the source. origin is called here for each row
/// and not kept, unless its runs are more than a list should hold; then any thread may call it.
TensorSource pick_rows(const TensorSource& source, int64_t count,
                       std::function<int64_t(int64_t)> origin);

/// The parts one under the other. Errors: indexed::FormatError when dtype or row shape differ.
TensorSource join_rows(std::vector<TensorSource> parts);

/// Matrices side by side. Errors: indexed::FormatError when dtype or number of rows differ.
TensorSource join_columns(std::vector<TensorSource> parts);

/// A matrix with rows and columns exchanged. Where the source does not lie in mapped memory, it is
/// held in memory from the first row that is read until the last was.
/// Errors: indexed::FormatError when it is no matrix.
TensorSource transpose(const TensorSource& source);

/// The same numbers in another float dtype (F32, F16, BF16, F64), rounded to nearest even.
/// Errors: indexed::FormatError for another dtype.
TensorSource convert_dtype(const TensorSource& source, const std::string& dtype);

/// Every element plus one, in the source's dtype: norms that are stored around zero.
TensorSource add_one(const TensorSource& source);

/// Zeros, for biases that a format must have and the model has not, and for vocabulary padding.
TensorSource zeros(const std::string& dtype, std::vector<int64_t> shape);

}  // namespace convert
