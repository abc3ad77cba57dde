// SPDX-License-Identifier: MIT
// zero_source.h: the memory of each data rank, and the slices of a parameter in it.
#include "convert/zero_source.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

#include "convert/flat_memory.h"
#include "libindexed/format.h"

namespace convert {
namespace {

using indexed::FormatError;
namespace fs = std::filesystem;

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

/// One data rank's memory.
struct FlatRank {
  std::string path;
  FlatMemory memory;
};

FlatRank open_flat(const std::string& path, TorchFile::Checksums checksums) {
  const auto file = std::make_shared<TorchFile>(path, checksums);
  FlatRank flat{path, {}};
  for (const PickledTensor* tensor : flat_tensors(*file, "fp32_flat_groups"))
    flat.memory.append(file, *tensor);
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
      (*ranks)[static_cast<size_t>(rank)].memory.read(place + offset, run, out);
      at += run;
      left -= run;
      out += 4 * run;
    }
  };
  return copied_source(std::move(source), [ranks, place, slice] {
    for (const FlatRank& rank : *ranks) rank.memory.release(place, slice);
  });
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
      result.states->budget().spend(kFlatEntryBytes +
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
    if (rank.memory.elements() != place)
      throw FormatError(rank.path + ": " + std::to_string(rank.memory.elements()) +
                        " elements, expected " + std::to_string(place) + " of the parameters in " +
                        path);
  return result;
}

}  // namespace convert
