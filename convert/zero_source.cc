// SPDX-License-Identifier: MIT
// zero_source.h: file names, the flat tensors of each data rank, the slices of a parameter.
#include "convert/zero_source.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

#include "libindexed/format.h"

namespace convert {
namespace {

using indexed::FormatError;
namespace fs = std::filesystem;

// Budget for an entry of the tables, besides its names.
constexpr int64_t kEntryBytes = 512;

std::string states_name(int64_t data_rank, int64_t tp) {
  char name[80];
  std::snprintf(name, sizeof name, "zero_pp_rank_%lld_mp_rank_%02lld_model_states.pt",
                static_cast<long long>(data_rank), static_cast<long long>(tp));
  return name;
}

/// The optimizer's file of a rank; with a bf16 model its name has a prefix.
std::string optimizer_path(const std::string& folder, int64_t data_rank, int64_t tp) {
  std::string name = states_name(data_rank, tp);
  name.replace(name.rfind("model_states"), 12, "optim_states");
  for (const char* head : {"", "bf16_", "fp16_"})
    if (fs::exists(folder + "/" + head + name)) return folder + "/" + head + name;
  throw FormatError(folder + "/" + name + ": is missing");
}

/// One data rank's flat memory: concatenated fp32 tensors.
struct FlatRank {
  struct Part {
    int64_t begin = 0;
    const PickledTensor* tensor = nullptr;
  };
  std::shared_ptr<TorchFile> file;
  std::vector<Part> parts;
  int64_t elements = 0;

  /// Elements first .. first + count - 1 to `out`.
  void read(int64_t first, int64_t count, std::byte* out) const {
    auto at = std::upper_bound(parts.begin(), parts.end(), first,
                               [](int64_t place, const Part& part) { return place < part.begin; });
    if (at != parts.begin()) --at;
    for (; at != parts.end() && at->begin < first + count; ++at) {
      const Part& part = *at;
      const int64_t begin = std::max(first, part.begin);
      const int64_t end = std::min(first + count, part.begin + part.tensor->elements());
      if (begin >= end) continue;
      file->read_rows(*part.tensor, begin - part.begin, end - begin,
                      out + (begin - first) * element_bytes(*part.tensor));
    }
  }
};

FlatRank open_flat(const std::string& path, TorchFile::Checksums checksums) {
  FlatRank flat;
  flat.file = std::make_shared<TorchFile>(path, checksums);
  const Value state = flat.file->root().find("optimizer_state_dict");
  const auto fail = [&](const std::string& why) { throw FormatError(path + ": " + why); };
  const Value groups = state.find("fp32_flat_groups");
  if (!groups.is(Kind::list)) fail("no fp32_flat_groups: not of ZeRO stage 3");
  for (int64_t i = 0; i < groups.size(); ++i) {
    const Value group = groups.item(i);
    if (!group.is(Kind::tensor) || group.tensor().dtype != "F32" ||
        group.tensor().shape.size() != 1)
      fail("fp32_flat_groups holds something that is no flat fp32 tensor");
    flat.file->budget().spend(kEntryBytes);
    flat.parts.push_back({flat.elements, &group.tensor()});
    if (__builtin_add_overflow(flat.elements, group.tensor().elements(), &flat.elements) ||
        flat.elements > flat.file->file_bytes() / 4)
      fail("fp32_flat_groups holds more than the file");
  }
  return flat;
}

/// `elements` elements of a parameter, of which rank d has the d-th slice at `place` of its memory.
TensorSource slices(std::shared_ptr<const std::vector<FlatRank>> ranks, int64_t place,
                    int64_t slice, const std::vector<int64_t>& shape, const std::string& name) {
  TensorSource source{"F32", shape, {}, name};
  source.read_rows = [ranks, place, slice, row = source.row_bytes() / 4](
                         int64_t first, int64_t count, std::byte* out) {
    int64_t at = first * row;
    for (int64_t left = count * row; left > 0;) {
      const int64_t rank = at / slice, offset = at % slice;
      const int64_t run = std::min(left, slice - offset);
      (*ranks)[static_cast<size_t>(rank)].read(place + offset, run, out);
      at += run;
      left -= run;
      out += 4 * run;
    }
  };
  return source;
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

}  // namespace

int64_t zero_tensor_ranks(const std::string& folder) {
  int64_t ranks = 0;
  while (fs::exists(folder + "/" + states_name(0, ranks))) ++ranks;
  return ranks;
}

ZeroRank read_zero_rank(const std::string& folder, int64_t tp, TorchFile::Checksums checksums) {
  const std::string path = folder + "/" + states_name(0, tp);
  ZeroRank result{std::make_shared<TorchFile>(path, checksums), {}};
  const Value root = result.states->root();
  if (root.find("frozen_param_shapes").size() > 0)
    throw FormatError(path + ": frozen_param_shapes: frozen parameters are not supported");
  const int64_t world = root.find("dp_world_size").integer().value_or(0);
  if (world < 1 || world > 1 << 20)
    throw FormatError(path + ": dp_world_size is " + std::to_string(world));
  const auto ranks = std::make_shared<std::vector<FlatRank>>();
  for (int64_t d = 0; d < world; ++d)
    ranks->push_back(open_flat(optimizer_path(folder, d, tp), checksums));
  int64_t place = 0;
  const Value groups = root.find("param_shapes");
  for (int64_t g = 0; g < (groups.is(Kind::list) ? groups.size() : 0); ++g) {
    const Value group = groups.item(g);
    if (!group.is(Kind::dict)) throw FormatError(path + ": param_shapes holds no dict");
    result.states->budget().spend(1);
    for (int64_t i = 0; i < group.size(); ++i) {
      const std::string name(group.key(i).text());
      result.states->budget().spend(kEntryBytes +
                                    static_cast<int64_t>(4 * (name.size() + path.size())));
      const std::vector<int64_t> shape = shape_of(group.value(i), path + ": " + name);
      TensorSource source = slices(ranks, place, 1, shape, path + ": " + name);
      const int64_t slice = (source.elements() + world - 1) / world;
      source = slices(ranks, place, std::max<int64_t>(slice, 1), shape, source.place);
      result.tensors[name] = std::move(source);
      if (__builtin_add_overflow(place, slice, &place))
        throw FormatError(path + ": " + name + ": an impossible shape");
    }
  }
  for (const FlatRank& rank : *ranks)
    if (rank.elements != place)
      throw FormatError(rank.file->path() + ": " + std::to_string(rank.elements) +
                        " elements, expected " + std::to_string(place) + " of the parameters in " +
                        path);
  return result;
}

}  // namespace convert
