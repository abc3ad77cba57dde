// SPDX-License-Identifier: MIT
// flat_memory.h: checks of what a file lists, elements across tensors.
#include "convert/flat_memory.h"

#include <algorithm>

#include "libindexed/format.h"

namespace convert {

using indexed::FormatError;

void FlatMemory::append(std::shared_ptr<const TorchFile> file, const PickledTensor& tensor) {
  parts_.push_back({elements_, std::move(file), &tensor});
  if (__builtin_add_overflow(elements_, tensor.elements(), &elements_))
    throw FormatError(parts_.back().file->path() + ": holds more than any memory");
}

std::vector<FlatMemory::Part>::const_iterator FlatMemory::part_of(int64_t element) const noexcept {
  const auto behind =
      std::upper_bound(parts_.begin(), parts_.end(), element,
                       [](int64_t place, const Part& part) { return place < part.begin; });
  return behind == parts_.begin() ? behind : behind - 1;
}

void FlatMemory::release(int64_t first, int64_t count) const noexcept {
  for (auto at = part_of(first); at != parts_.end() && at->begin < first + count; ++at)
    at->file->release(*at->tensor);
}

void FlatMemory::read(int64_t first, int64_t count, std::byte* out) const {
  for (auto at = part_of(first); at != parts_.end() && at->begin < first + count; ++at) {
    const int64_t begin = std::max(first, at->begin);
    const int64_t end = std::min(first + count, at->begin + at->tensor->elements());
    if (begin >= end) continue;
    at->file->read_rows(*at->tensor, begin - at->begin, end - begin,
                        out + (begin - first) * element_bytes(*at->tensor));
  }
}

std::vector<const PickledTensor*> flat_tensors(const TorchFile& file, const std::string& key) {
  std::vector<const PickledTensor*> tensors;
  const Value groups = file.root().find("optimizer_state_dict").find(key);
  const auto fail = [&](const std::string& why) { throw FormatError(file.path() + ": " + why); };
  if (!groups.is(Kind::list)) fail("no " + key);
  int64_t elements = 0;
  for (int64_t i = 0; i < groups.size(); ++i) {
    const Value group = groups.item(i);
    if (!group.is(Kind::tensor) || group.tensor().dtype != "F32" ||
        group.tensor().shape.size() != 1)
      fail(key + " holds something that is no flat fp32 tensor");
    file.budget().spend(kFlatEntryBytes);
    tensors.push_back(&group.tensor());
    if (__builtin_add_overflow(elements, group.tensor().elements(), &elements) ||
        elements > file.file_bytes() / 4)
      fail(key + " holds more than the file");
  }
  return tensors;
}

std::vector<int64_t> shape_of(Value size, const std::string& what) {
  std::vector<int64_t> shape;
  int64_t most = 1;
  if (!size.is(Kind::tuple)) throw FormatError(what + ": its shape is no tuple");
  if (size.size() > 64) throw FormatError(what + ": more than 64 dimensions");
  for (int64_t i = 0; i < size.size(); ++i) {
    const int64_t extent = size.item(i).integer().value_or(-1);
    if (extent < 0 || __builtin_mul_overflow(most, std::max<int64_t>(extent, 1), &most) ||
        most > int64_t{1} << 40)
      throw FormatError(what + ": an impossible shape");
    shape.push_back(extent);
  }
  return shape;
}

}  // namespace convert
