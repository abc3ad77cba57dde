// SPDX-License-Identifier: MIT
// A tensor that is not in memory: its description, and how to read it. Readers create sources over
// their mapped files; the functions here create sources from sources (picked rows, joined shards,
// transposes, other dtypes); writers read them a block at a time (tensor_blocks.h). So a conversion
// of any size needs little memory. A source remembers which rows of which others it consists of: a
// tensor that is split and joined again is the original bytes, and is written directly from the
// mapped file. Not here: which tensors a model has (canonical.h).
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

/// Memory of one thread that is reused for each block; it grows and is not cleared.
class Scratch {
 public:
  /// At least `bytes` of memory; its content is lost when it grows.
  std::byte* of(int64_t bytes);

 private:
  std::unique_ptr<std::byte[]> memory_;
  int64_t bytes_ = 0;
};

/// A tensor's bytes in a mapped file, one row after another.
struct MappedRows {
  const std::byte* data = nullptr;
  /// Verifies the checksums of bytes begin .. end - 1; empty if there are none. Any thread. Errors:
  /// indexed::FormatError when they are damaged.
  std::function<void(int64_t begin, int64_t end)> check = {};
  /// Tells the system that those bytes are not needed again soon. Any thread; may be empty.
  std::function<void(int64_t begin, int64_t end)> release = {};
};

/// Neighbouring rows of a tensor, in mapped memory.
struct MappedPiece {
  const std::byte* data = nullptr;  ///< the first row's first element
  int64_t first = 0, count = 0;     ///< which rows
  /// Bytes from one row there to the next; if `transposed`, the tensor's rows are columns there.
  int64_t row_bytes = 0;
  bool transposed = false;
};

/// A tensor to be read later. Copies share the underlying files.
struct TensorSource {
  std::string dtype;
  std::vector<int64_t> shape;
  /// Writes rows first .. first + count - 1 to `out`. Any thread, several at a time. Errors: those
  /// of the underlying file.
  std::function<void(int64_t first, int64_t count, std::byte* out)> read_rows;
  /// Where it comes from, for messages: "model_optim_rng.pt: layers.0.mlp.dense_h_to_4h.weight".
  std::string place = {};

  int64_t rows() const noexcept { return shape.empty() ? 1 : shape[0]; }
  int64_t element_bytes() const noexcept;
  int64_t elements() const noexcept;
  int64_t row_bytes() const noexcept;
  int64_t bytes() const noexcept { return elements() * element_bytes(); }
  /// The whole tensor. Errors: those of read_rows.
  std::vector<std::byte> load() const;
  /// The rows in a mapped file, contiguous and verified; null if they are not contiguous in one.
  /// Errors: those of MappedRows::check.
  const std::byte* in_place(int64_t first, int64_t count) const;
  /// The pieces of mapped files that the tensor consists of, verified, in the order of rows; empty
  /// if something of it is in none. Errors: those of MappedRows::check.
  std::vector<MappedPiece> mapped_pieces() const;
  /// Bytes at .. at + size - 1: in the mapped file, or read into `scratch` and valid until that is
  /// used again. Errors: those of read_rows.
  std::span<const std::byte> block(int64_t at, int64_t size, Scratch& scratch) const;
  /// Tells the system that nothing of it is needed again soon.
  void release() const;
};

/// A source over a mapped file.
TensorSource mapped_source(const std::string& dtype, std::vector<int64_t> shape,
                           const std::string& place, MappedRows rows);

/// `source`, whose read_rows copies from somewhere that release() gives back: it then calls
/// `give_back`, on any thread.
TensorSource copied_source(TensorSource source, std::function<void()> give_back);

/// Rows first .. first + count - 1.
TensorSource slice_rows(const TensorSource& source, int64_t first, int64_t count);

/// `count` rows, of which row i is row origin(i) of the source. origin is called here for each row
/// and not kept, unless that gives too many runs for a list; then any thread may call it later.
TensorSource pick_rows(const TensorSource& source, int64_t count,
                       std::function<int64_t(int64_t)> origin);

/// The parts concatenated by rows. Errors: indexed::FormatError when dtype or row shape differ.
TensorSource join_rows(std::vector<TensorSource> parts);

/// Matrices side by side. Errors: indexed::FormatError when dtype or number of rows differ.
TensorSource join_columns(std::vector<TensorSource> parts);

/// The transpose of a matrix. If the source is not in mapped memory, it is kept in memory while its
/// rows are being read, from the first to the last. Errors: indexed::FormatError when it is not a
/// matrix.
TensorSource transpose(const TensorSource& source);

/// The same numbers in another float dtype (F32, F16, BF16, F64), rounded to nearest even.
/// Errors: indexed::FormatError for another dtype.
TensorSource convert_dtype(const TensorSource& source, const std::string& dtype);

/// `exact`, which was computed, in `dtype`. convert_dtype() of the result rounds `exact` itself, so
/// that nothing is rounded twice. Errors: as convert_dtype().
TensorSource round_computed(const TensorSource& exact, const std::string& dtype);

/// Every element plus one, in the source's dtype by round_computed(): for norm weights that are
/// stored minus one. Errors: as convert_dtype().
TensorSource add_one(const TensorSource& source);

/// Refuses bytes of a source, from byte `at` on, that are numbers which are not finite: a model
/// that is trained on with them is lost. Errors: indexed::FormatError naming the tensor, of joined
/// ones the part that has the first such number, and the dtype.
void refuse_not_finite(const TensorSource& source, int64_t at, std::span<const std::byte> bytes);

/// Zeros, for biases that a format requires but the model lacks, and for vocabulary padding.
TensorSource zeros(const std::string& dtype, std::vector<int64_t> shape);

}  // namespace convert
