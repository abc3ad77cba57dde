// SPDX-License-Identifier: MIT
// Writes files like torch.save's: a ZIP archive of stored members, whose object graph PickleBuilder
// builds and whose tensors are streamed one at a time. Not here: the reader (torch_file.h), the
// objects of a Megatron checkpoint (megatron_target.h).
// Source: docs/format/torch-file.5.md.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/tensor_source.h"
#include "libindexed/output_file.h"

namespace convert {

/// Builds a pickle of protocol 2. Calls nest as the objects do; an unclosed object is a bug in the
/// caller.
class PickleBuilder {
 public:
  PickleBuilder& none();
  PickleBuilder& boolean(bool value);
  PickleBuilder& integer(int64_t value);
  PickleBuilder& real(double value);
  PickleBuilder& text(std::string_view value);
  /// A tuple of two whole numbers.
  PickleBuilder& pair(int64_t first, int64_t second);
  /// An imported name: ("torch", "bfloat16").
  PickleBuilder& global(std::string_view module, std::string_view name);
  /// A contiguous CPU tensor; its bytes become the next storage.
  PickleBuilder& tensor(const TensorSource& source);

  /// A dict or OrderedDict: begin, alternating keys and values, end.
  PickleBuilder& begin_dict();
  PickleBuilder& begin_ordered_dict();
  PickleBuilder& end_dict();
  /// argparse.Namespace, or an OrderedDict with attributes: alternating names and values in
  /// between.
  PickleBuilder& begin_namespace();
  PickleBuilder& begin_attributes();
  PickleBuilder& end_object();

  /// The pickle, closed, and the tensors by storage key.
  std::string finish() &&;
  const std::vector<TensorSource>& tensors() const noexcept { return tensors_; }

 private:
  std::string bytes_ = std::string("\x80\x02", 2);
  std::vector<TensorSource> tensors_;
};

/// Writes `builder`'s object as the file `path`. Blocks of tensors are written on
/// all processors; `progress` is called on any of them, one at a time.
/// `before_naming` is called when everything is written, before the file gets its name.
/// Errors: std::system_error (EEXIST unless `existing` is replace); those of the tensors' sources;
/// indexed::FormatError for a dtype without a storage class in torch, or a number that is not
/// finite.
void write_torch_file(const std::string& path, PickleBuilder builder, indexed::Existing existing,
                      const std::function<void(int64_t done, int64_t total)>& progress = {},
                      const std::function<void()>& before_naming = {});

}  // namespace convert
