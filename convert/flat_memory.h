// SPDX-License-Identifier: MIT
// The flat fp32 tensors in which DeepSpeed's optimizers keep weights, read as one array.
// zero_source.h and main_parameters.h say which weight is where in it.
// Source: docs/format/megatron-checkpoint.5.md, "ZeRO".
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "convert/torch_file.h"

namespace convert {

/// Units of a file's budget for an entry of the tables made of it, besides its names.
inline constexpr int64_t kFlatEntryBytes = 512;

/// fp32 tensors of one dimension, one after another; they may be of several files.
class FlatMemory {
 public:
  /// Appends `tensor`, which is of `file`.
  void append(std::shared_ptr<const TorchFile> file, const PickledTensor& tensor);
  int64_t elements() const noexcept { return elements_; }
  /// Elements first .. first + count - 1, which must be there, to `out`. Any thread.
  /// Errors: those of the files.
  void read(int64_t first, int64_t count, std::byte* out) const;
  /// Tells the system that the files' pages with those elements are not needed again soon.
  void release(int64_t first, int64_t count) const noexcept;

 private:
  struct Part {
    int64_t begin = 0;
    std::shared_ptr<const TorchFile> file;
    const PickledTensor* tensor = nullptr;
  };
  std::vector<Part>::const_iterator part_of(int64_t element) const noexcept;

  std::vector<Part> parts_;
  int64_t elements_ = 0;
};

/// The tensors listed under `key` of an optimizer's state. Errors: indexed::FormatError where
/// something else is there, or together they are larger than their file.
std::vector<const PickledTensor*> flat_tensors(const TorchFile& file, const std::string& key);

/// A pickled torch.Size. Errors: indexed::FormatError beginning with `what`.
std::vector<int64_t> shape_of(Value size, const std::string& what);

}  // namespace convert
