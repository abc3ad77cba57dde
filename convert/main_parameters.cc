// SPDX-License-Identifier: MIT
// main_parameters.h: the files of a folder, the place of each parameter in the memory that the data
// ranks divide, and the comparison with the 16-bit weights.
#include "convert/main_parameters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include "convert/flat_memory.h"
#include "convert/megatron_names.h"
#include "libindexed/format.h"

namespace convert {

using indexed::FormatError;
namespace fs = std::filesystem;

// One rank of the model: its parameters, and the memory of the data ranks that hold them.
struct MainRank {
  // A parameter's elements in its group's memory.
  struct Place {
    size_t group = 0;
    int64_t begin = 0;
    int64_t elements = 0;
    std::optional<std::vector<int64_t>> shape = {};  ///< where the files say it
  };

  std::string optimizer;  ///< data rank 0's file, for messages
  std::vector<std::shared_ptr<FlatMemory>> groups;
  std::map<std::string, Place> places;
  std::set<std::string> frozen;               ///< names without main parameters
  std::map<std::string, std::string> shared;  ///< names of a parameter that has another one, too
};

namespace {

constexpr std::string_view kStates = "_model_states.pt", kOptimizer = "_optim_states.pt";
constexpr const char* kState = "optimizer_state_dict";
constexpr const char* kGroups = "single_partition_of_fp32_groups";
constexpr const char* kFragments = "param_slice_mappings";
constexpr int64_t kMostElements = int64_t{1} << 48;
constexpr const char* kTied = "tied_modules.";  // and a key; where a layer's number stands else

bool is_half(const TensorSource& weight) { return weight.dtype == "F16" || weight.dtype == "BF16"; }

// The number that follows `word`; both are taken off `text`.
std::optional<int64_t> take_numbered(std::string_view& text, std::string_view word) {
  int64_t value = 0;
  if (!text.starts_with(word)) return {};
  text.remove_prefix(word.size());
  const std::from_chars_result end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc() || value < 0) return {};
  text.remove_prefix(static_cast<size_t>(end.ptr - text.data()));
  return value;
}

// What a folder has of one rank of the model.
struct Files {
  std::string model;
  std::map<int64_t, std::string> optimizers;  ///< by data rank
};

std::map<int64_t, Files> files_in(const std::string& folder) {
  std::map<int64_t, Files> ranks;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    std::string_view rest = name;
    if (const auto model = take_numbered(rest, "mp_rank_"); model && rest == kStates) {
      ranks[*model].model = entry.path().string();
      continue;
    }
    rest = name;
    for (const std::string_view head : {"bf16_", "fp16_"})
      if (rest.starts_with(head)) rest.remove_prefix(head.size());
    const std::optional<int64_t> data = take_numbered(rest, "zero_pp_rank_");
    if (!data) continue;
    const std::optional<int64_t> model = take_numbered(rest, "_mp_rank_");
    if (!model || rest != kOptimizer) continue;
    const auto [there, is_new] = ranks[*model].optimizers.emplace(*data, entry.path().string());
    if (!is_new)
      throw FormatError(std::max(there->second, entry.path().string()) + ": is there beside " +
                        std::min(there->second, entry.path().string()));
  }
  return ranks;
}

std::string numbered(int64_t number, const std::string& folder, const std::string& head,
                     std::string_view end) {
  const std::string digits = std::to_string(number);
  return folder + "/" + head + (digits.size() < 2 ? "0" : "") + digits + std::string(end);
}

// Why the main parameters of a checkpoint, of which these are the first files, are not read; empty
// if they are. What is damaged is an error later.
std::string reason_not_to_read(const TorchFile& model, const TorchFile& optimizer) {
  const Value state = optimizer.root().find(kState), groups = state.find(kGroups);
  if (!state.is(Kind::dict)) return {};
  if (!groups) return optimizer.path() + ": has no " + kGroups;
  if (groups.is(Kind::list) && groups.size() > 0 && groups.item(0).is(Kind::tensor) &&
      groups.item(0).tensor().dtype.ends_with("F16"))
    return optimizer.path() + ": its main parameters are " + groups.item(0).tensor().dtype;
  const Value shapes = model.root().find("param_shapes");
  if ((!shapes || shapes.is(Kind::null) || shapes.is(Kind::dict)) && !state.find(kFragments))
    return model.path() + ": does not list the parameters of each group in param_shapes";
  return {};
}

// Among how many data ranks a group is divided. Groups of experts are divided among fewer.
int64_t partition_count(const TorchFile& file) {
  const Value count = file.root().find(kState).find("partition_count");
  const int64_t all = count.is(Kind::list) && count.size() > 0 ? count.item(0).integer().value_or(0)
                                                               : count.integer().value_or(0);
  for (int64_t i = 1; i < (count.is(Kind::list) ? count.size() : 0); ++i)
    if (count.item(i).integer() != all)
      throw FormatError(file.path() + ": partition_count is not the same for all groups");
  if (all < 1) throw FormatError(file.path() + ": no partition_count");
  return all;
}

// The zeros behind parameter `i` of group `g` (the setting parameter_alignment).
int64_t padding_behind(const TorchFile& file, int64_t g, int64_t i, int64_t parameters) {
  const Value all = file.root().find(kState).find("param_alignment_paddings");
  if (!all || all.is(Kind::null)) return 0;
  const Value group = all.is(Kind::list) && g < all.size() ? all.item(g) : Value();
  const int64_t padding = group.is(Kind::list) && group.size() == parameters
                              ? group.item(i).integer().value_or(-1)
                              : -1;
  if (padding < 0 || padding > kMostElements)
    throw FormatError(file.path() + ": param_alignment_paddings do not fit param_shapes");
  return padding;
}

// All memory of a rank's parameters, group by group, and where each data rank's begins.
struct Divided {
  std::vector<std::shared_ptr<TorchFile>> files;  ///< by data rank
  std::vector<std::shared_ptr<FlatMemory>> groups;
  std::vector<std::vector<int64_t>> begins;  ///< by data rank and group
};

Divided open_divided(const std::string& folder, const Files& of, const SourceOptions& options) {
  Divided all;
  int64_t count = 0;
  for (int64_t d = 0; d == 0 || d < count; ++d) {
    const auto found = of.optimizers.find(d);
    if (found == of.optimizers.end()) {
      std::string name = fs::path(of.optimizers.begin()->second).filename().string();
      const size_t at = name.find("rank_") + 5;
      name.replace(at, name.find('_', at) - at, std::to_string(d));
      throw FormatError(folder + "/" + name + ": is missing");
    }
    all.files.push_back(open_torch_file(found->second, options));
    const TorchFile& file = *all.files.back();
    const int64_t said = partition_count(file);
    if (d == 0) count = said;
    if (said != count)
      throw FormatError(file.path() + ": its partition_count is " + std::to_string(said) +
                        ", but " + std::to_string(count) + " in " + all.files[0]->path());
    const std::vector<const PickledTensor*> tensors = flat_tensors(file, kGroups);
    if (d == 0)
      for (size_t g = 0; g < tensors.size(); ++g)
        all.groups.push_back(std::make_shared<FlatMemory>());
    if (tensors.size() != all.groups.size())
      throw FormatError(file.path() + ": " + std::to_string(tensors.size()) + " groups, but " +
                        std::to_string(all.groups.size()) + " in " + all.files[0]->path());
    all.begins.emplace_back();
    for (size_t g = 0; g < tensors.size(); ++g) {
      all.begins.back().push_back(all.groups[g]->elements());
      all.groups[g]->append(all.files.back(), *tensors[g]);
    }
  }
  if (of.optimizers.rbegin()->first >= count)
    throw FormatError(of.optimizers.rbegin()->second + ": is there, but the partition_count of " +
                      all.files[0]->path() + " is " + std::to_string(count));
  return all;
}

// Places of the parameters that `model` lists, in the order of the list.
void add_listed(const Divided& all, const TorchFile& model, Value groups, MainRank& rank) {
  const TorchFile& first = *all.files[0];
  const auto ranks = static_cast<int64_t>(all.files.size());
  if (!groups.is(Kind::list) || groups.size() != static_cast<int64_t>(all.groups.size()))
    throw FormatError(model.path() + ": param_shapes has " + std::to_string(groups.size()) +
                      " groups, but " + first.path() + " " + std::to_string(all.groups.size()));
  for (int64_t g = 0; g < groups.size(); ++g) {
    const Value group = groups.item(g);
    if (!group.is(Kind::dict)) throw FormatError(model.path() + ": param_shapes holds no dict");
    int64_t end = 0, padded = 0;
    for (int64_t i = 0; i < group.size(); ++i) {
      const std::string name(group.key(i).text());
      model.budget().spend(kFlatEntryBytes + static_cast<int64_t>(4 * name.size()));
      MainRank::Place place{.group = static_cast<size_t>(g), .begin = padded, .elements = 1};
      place.shape = shape_of(group.value(i), model.path() + ": param_shapes: " + name);
      for (const int64_t extent : *place.shape) place.elements *= extent;
      end = padded + place.elements;
      padded = end + padding_behind(first, g, i, group.size());
      if (padded > kMostElements)
        throw FormatError(model.path() + ": param_shapes: " + name + ": an impossible shape");
      if (!rank.places.emplace(name, std::move(place)).second)
        throw FormatError(model.path() + ": param_shapes has " + name + " twice");
    }
    // Groups are padded to equal shares of an even number; some releases leave the padding out.
    const int64_t have = all.groups[static_cast<size_t>(g)]->elements();
    if (have < end || have > (padded + 2 * ranks - 1) / (2 * ranks) * (2 * ranks))
      throw FormatError(first.path() + ": group " + std::to_string(g) + " of all data ranks has " +
                        std::to_string(have) + " elements, expected " + std::to_string(padded) +
                        " of the parameters in " + model.path());
  }
}

// Places of the parameters as each data rank lists what it has of them.
void add_fragments(const Divided& all, MainRank& rank) {
  for (size_t d = 0; d < all.files.size(); ++d) {
    const TorchFile& file = *all.files[d];
    const Value groups = file.root().find(kState).find(kFragments);
    const auto fail = [&](const std::string& why) {
      throw FormatError(file.path() + ": " + kFragments + ": " + why);
    };
    if (!groups.is(Kind::list) || groups.size() != static_cast<int64_t>(all.groups.size()))
      fail(std::to_string(groups.size()) + " groups, expected " +
           std::to_string(all.groups.size()));
    for (size_t g = 0; g < all.groups.size(); ++g) {
      const Value group = groups.item(static_cast<int64_t>(g));
      const int64_t first = all.begins[d][g];
      const int64_t behind =
          d + 1 < all.files.size() ? all.begins[d + 1][g] : all.groups[g]->elements();
      for (int64_t i = 0; i < (group.is(Kind::dict) ? group.size() : 0); ++i) {
        const std::string name(group.key(i).text());
        file.budget().spend(kFlatEntryBytes + static_cast<int64_t>(4 * name.size()));
        const int64_t start = group.value(i).attribute("start").integer().value_or(-1);
        const int64_t count = group.value(i).attribute("numel").integer().value_or(-1);
        if (start < 0 || count < 0 || start > behind - first || count > behind - first - start)
          fail(name + ": leaves the file's part of the group");
        const auto [at, is_new] =
            rank.places.emplace(name, MainRank::Place{.group = g, .begin = first + start});
        if (at->second.group != g || at->second.begin + at->second.elements != first + start)
          fail(name + ": does not follow its part of the ranks before");
        at->second.elements += count;
      }
    }
  }
}

std::shared_ptr<const MainRank> read_rank(const std::string& folder, const Files& of,
                                          const SourceOptions& options) {
  const std::shared_ptr<TorchFile> model = open_torch_file(of.model, options);
  const Divided all = open_divided(folder, of, options);
  auto rank = std::make_shared<MainRank>();
  rank->optimizer = all.files[0]->path();
  rank->groups = all.groups;
  const Value root = model->root(), listed = root.find("param_shapes");
  if (listed.is(Kind::list))
    add_listed(all, *model, listed, *rank);
  else
    add_fragments(all, *rank);
  const auto spend = [&](std::string_view name) {
    model->budget().spend(kFlatEntryBytes + static_cast<int64_t>(4 * name.size()));
    return std::string(name);
  };
  const Value frozen = root.find("frozen_param_shapes"), shared = root.find("shared_params");
  for (int64_t i = 0; i < (frozen.is(Kind::dict) ? frozen.size() : 0); ++i)
    rank->frozen.insert(spend(frozen.key(i).text()));
  for (int64_t i = 0; i < (shared.is(Kind::dict) ? shared.size() : 0); ++i)
    rank->shared[spend(shared.key(i).text())] = spend(shared.value(i).text());
  return rank;
}

// Refuses main parameters that do not become `weight`, elements `first` and on, when rounded.
void refuse_other(const TensorSource& weight, int64_t first, int64_t count, const std::byte* main,
                  const std::string& place) {
  constexpr int64_t kStep = 1 << 14;
  thread_local Scratch scratch, rounded;
  for (int64_t at = 0; at < count; at += kStep) {
    const int64_t n = std::min(kStep, count - at);
    const std::span<const std::byte> want = weight.block(2 * (first + at), 2 * n, scratch);
    std::byte* got = rounded.of(2 * kStep);
    convert_floats("F32", main + 4 * at, weight.dtype, got, n);
    if (std::memcmp(got, want.data(), want.size()) == 0) continue;
    const std::vector<float> a = to_floats(weight.dtype, got, n),
                             b = to_floats(weight.dtype, want.data(), n);
    for (size_t i = 0; i < a.size(); ++i)
      if (a[i] != b[i] && !(std::isnan(a[i]) && std::isnan(b[i])))
        throw FormatError(place + ": rounded to " + weight.dtype + " it is not " + weight.place +
                          ": files of two checkpoints");
  }
}

TensorSource main_source(const MainRank& rank, const std::string& name,
                         const TensorSource& weight) {
  const auto other = rank.shared.find(name);
  const auto found = rank.places.find(other == rank.shared.end() ? name : other->second);
  if (found == rank.places.end()) {
    if (rank.frozen.contains(name)) return weight;
    throw FormatError(weight.place + ": is not among the main parameters of " + rank.optimizer);
  }
  const MainRank::Place& place = found->second;
  if (place.shape ? *place.shape != weight.shape : place.elements != weight.elements())
    throw FormatError(rank.optimizer + ": " + name + ": another shape than " + weight.place);
  TensorSource source{"F32", weight.shape, {}, rank.optimizer + ": " + name};
  source.read_rows = [memory = rank.groups[place.group], begin = place.begin, weight,
                      row = weight.row_bytes() / 2,
                      where = source.place](int64_t first, int64_t count, std::byte* out) {
    memory->read(begin + first * row, count * row, out);
    refuse_other(weight, first * row, count * row, out, where);
  };
  return copied_source(std::move(source),
                       [memory = rank.groups[place.group], begin = place.begin, weight] {
                         memory->release(begin, weight.elements());
                         weight.release();
                       });
}

// Under which names a parameter is looked up besides its own: Megatron's core name, which it has in
// every nesting of modules; "*.", in the place of the key of tied modules.
std::vector<std::string> other_names(const std::string& name) {
  std::vector<std::string> names;
  if (name.starts_with(kTied)) {
    const size_t dot = name.find('.', std::string_view(kTied).size());
    if (dot != std::string::npos) names.push_back("*" + name.substr(dot));
  }
  try {
    if (const std::optional<std::string> core = core_name(name); core && *core != name)
      names.push_back(*core);
  } catch (const FormatError&) {  // a name of GPT-NeoX, or of no GPT model.
  }
  return names;
}

}  // namespace

MainParameters::MainParameters(std::string folder, const SourceOptions& options)
    : folder_(std::move(folder)), options_(options) {}

void MainParameters::index(const MainRank& rank) {
  std::vector<std::string> own;
  for (const auto& [name, place] : rank.places) own.push_back(name);
  own.insert(own.end(), rank.frozen.begin(), rank.frozen.end());
  for (const auto& [name, other] : rank.shared) own.push_back(name);
  for (const std::string& name : own) {
    by_name_[name].emplace_back(&rank, name);
    for (const std::string& other : other_names(name)) by_name_[other].emplace_back(&rank, name);
  }
}

void MainParameters::open() {
  opened_ = true;
  const std::map<int64_t, Files> files = files_in(folder_);
  const auto has = [](const auto& rank) { return !rank.second.optimizers.empty(); };
  if (std::none_of(files.begin(), files.end(), has)) {
    note_ = folder_ + ": has no zero_pp_rank_*_optim_states.pt";
  } else {
    for (const auto& [number, of] : files) {
      if (of.model.empty())
        throw FormatError(numbered(number, folder_, "mp_rank_", kStates) +
                          ": is missing, but its optimizer's files are there");
      if (of.optimizers.empty())
        throw FormatError(numbered(number, folder_, "zero_pp_rank_0_mp_rank_", kOptimizer) +
                          ": is missing, but those of other ranks are there");
      if (ranks_.empty())
        note_ = reason_not_to_read(*open_torch_file(of.model, options_),
                                   *open_torch_file(of.optimizers.begin()->second, options_));
      if (!note_.empty()) break;
      ranks_[number] = read_rank(folder_, of, options_);
      index(*ranks_[number]);
    }
  }
  if (!note_.empty())
    note_ += ": fp32 weights are not read, those of 16 bits are taken in their place";
}

bool MainParameters::has_main(const TensorSource& weight) {
  if (!options_.prefer_main || !is_half(weight)) return false;
  if (!opened_) open();
  return note_.empty();
}

TensorSource MainParameters::of_rank(int64_t rank, const std::string& name,
                                     const TensorSource& weight) {
  if (!has_main(weight)) return weight;
  const auto of = ranks_.find(rank);
  if (of == ranks_.end())
    throw FormatError(weight.place + ": is not among the main parameters in " + folder_);
  std::vector<std::string> names = other_names(name);
  names.insert(names.begin(), name);
  for (const std::string& known : names)
    if (const auto at = by_name_.find(known); at != by_name_.end())
      for (const Found& found : at->second)
        if (found.first == of->second.get()) return main_source(*found.first, found.second, weight);
  return main_source(*of->second, name, weight);
}

TensorSource MainParameters::of_layer(int64_t layer, int64_t tp, const std::string& name,
                                      const TensorSource& weight) {
  if (!has_main(weight)) return weight;
  const std::string own = std::to_string(layer) + "." + name;
  for (const std::string& known : {own, "sequential." + own, "*." + name}) {
    // Each tensor-parallel rank has the parameter; of a tied one each stage that uses it, too.
    const auto all = by_name_.find(known);
    if (all == by_name_.end() || static_cast<int64_t>(all->second.size()) <= tp) continue;
    const Found& found = all->second[static_cast<size_t>(tp)];
    return main_source(*found.first, found.second, weight);
  }
  throw FormatError(weight.place + ": is not among the main parameters in " + folder_);
}

}  // namespace convert
