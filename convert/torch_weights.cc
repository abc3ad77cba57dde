// SPDX-License-Identifier: MIT
// torch_weights.h: joins names, limits sizes, releases pages once read.
#include "convert/torch_weights.h"

#include "libindexed/format.h"

namespace convert {
namespace {

using indexed::FormatError;

constexpr int64_t kSourceBytes = 512;  // of a TensorSource with its name, for the budget

TensorSource torch_source(const std::shared_ptr<TorchFile>& file, const PickledTensor& tensor,
                          const std::string& name) {
  TensorSource source{tensor.dtype, tensor.shape, {}, file->path() + ": " + name};
  source.read_rows = [file, &tensor, rows = source.rows(), row = source.row_bytes()](
                         int64_t first, int64_t count, std::byte* out) {
    constexpr int64_t kLarge = 8 << 20;
    file->read_rows(tensor, first, count, out);
    if (first + count == rows || count * row >= kLarge) file->release(tensor);
  };
  return source;
}

// Every tensor below `value` under its keys joined by dots. Weights are dicts of text keys, tensors
// and nothing else, extra state excepted.
void flatten(const std::shared_ptr<TorchFile>& file, Value value, const std::string& prefix,
             int depth, std::map<std::string, TensorSource>& out) {
  if (depth > 16) throw FormatError(file->path() + ": " + prefix + ": nested too deep");
  for (int64_t i = 0; i < value.size(); ++i) {
    const Value key = value.key(i), item = value.value(i);
    if (!key.is(Kind::text)) throw FormatError(file->path() + ": " + prefix + ": a key is no text");
    // A dict that occurs in many places is traversed in each: the budget limits this.
    file->budget().spend(kSourceBytes +
                         static_cast<int64_t>(4 * (prefix.size() + key.text().size())));
    const std::string name =
        prefix.empty() ? std::string(key.text()) : prefix + "." + std::string(key.text());
    if (item.is(Kind::dict)) {
      flatten(file, item, name, depth + 1, out);
    } else if (item.is(Kind::tensor)) {
      out[name] = torch_source(file, item.tensor(), name);
    } else if (!item.is(Kind::null) && name.find("_extra_state") == std::string::npos) {
      throw FormatError(file->path() + ": " + name + ": not a tensor among the weights" +
                        (item.text().empty() ? "" : " but " + std::string(item.text())));
    }
  }
}

// A file whose tensors are many times larger than itself would be an attempt to fill the disk.
void check_size(const TorchFile& file, const std::map<std::string, TensorSource>& tensors) {
  int64_t bytes = 0;
  for (const auto& [name, source] : tensors)
    if (__builtin_add_overflow(bytes, source.bytes(), &bytes) || bytes / 8 > file.file_bytes())
      throw FormatError(file.path() + ": its tensors are more than 8 times its " +
                        std::to_string(file.file_bytes()) + " bytes");
}

}  // namespace

std::map<std::string, TensorSource> torch_weights(const std::shared_ptr<TorchFile>& file,
                                                  Value value) {
  std::map<std::string, TensorSource> out;
  if (!value.is(Kind::dict)) throw FormatError(file->path() + ": no dict of tensors");
  flatten(file, value, "", 0, out);
  check_size(*file, out);
  return out;
}

}  // namespace convert
