// SPDX-License-Identifier: MIT
// megatron_source.h: folders, ranks and pipeline stages of Megatron's and Megatron-DeepSpeed's
// checkpoints, up to whole parameters under core names; canonical form follows in core_tensors.cc.
#include "convert/megatron_source.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>
#include <set>

#include "convert/families/families.h"
#include "convert/main_parameters.h"
#include "convert/megatron_names.h"
#include "convert/neox_source.h"
#include "convert/rank_agreement.h"
#include "convert/torch_dist.h"
#include "convert/torch_weights.h"
#include "convert/zero_source.h"
#include "libindexed/format.h"
#include "libindexed/mapped_file.h"
#include "trainer/checkpoint/killed_conversion.h"

namespace convert {
namespace {

using indexed::FormatError;
namespace fs = std::filesystem;

using Shares = RankShares;

constexpr size_t kMaxTracker = 4096;
constexpr int64_t kMaxRank = int64_t{1} << 20;

// One rank's file and where its parameters belong.
struct RankFile {
  int64_t tp = 0;
  int64_t pp = 0;
  std::string path;
  std::shared_ptr<TorchFile> file;
};

// A tracker's only line, read through a mapping, which refuses a FIFO and a folder.
std::string first_line(const fs::path& path) {
  const indexed::MappedFile file(path.string());
  std::string line(reinterpret_cast<const char*>(file.bytes().data()),
                   std::min(file.bytes().size(), kMaxTracker));
  line.resize(std::min(line.size(), line.find('\n')));
  while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.pop_back();
  return line;
}

// 12 of "12"; nothing for anything else.
std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const std::from_chars_result end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || value < 0 || end.ec != std::errc() || end.ptr != text.data() + text.size())
    return {};
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

// Key for the last stage's copy of the embedding among a chunk's parameters.
constexpr const char* kHeadCopy = "the head's copy";
// Where the checkpoint's arguments say that the output layer is the embedding.
constexpr const char* kTied = "its argument untie_embeddings_and_output_weights is not true";
constexpr const char* kWords = "embedding.word_embeddings.weight";

// One model chunk's parameters by core name; layers counted from 0.
std::map<std::string, TensorSource> chunk_tensors(const RankFile& rank, Value chunk,
                                                  MainParameters* main) {
  if (!chunk.is(Kind::dict)) throw FormatError(rank.path + ": its model is not a dict");
  std::map<std::string, TensorSource> raw = torch_weights(rank.file, chunk);
  std::map<std::string, TensorSource> out;
  for (auto& [name, source] : raw) {
    std::optional<std::string> core;
    try {
      core = core_name(name);
    } catch (const FormatError& e) {
      throw FormatError(rank.path + ": " + e.what());
    }
    if (!core && is_head_copy(name)) core = kHeadCopy;
    if (!core) continue;
    if (main != nullptr) source = main->of_rank(rank.tp, name, source);
    if (!out.emplace(*core, std::move(source)).second)
      throw FormatError(rank.path + ": two parameters are called " + *core);
  }
  return out;
}

// The chunks of a rank: "model", or "model0", "model1", ... with virtual pipeline stages, or
// DeepSpeed's "module".
std::vector<Value> chunks_of(const RankFile& rank) {
  const Value root = rank.file->root();
  if (!root.is(Kind::dict)) throw FormatError(rank.path + ": not a Megatron checkpoint");
  for (const char* name : {"model", "module"})
    if (root.find(name).is(Kind::dict)) return {root.find(name)};
  std::vector<Value> chunks;
  while (const Value chunk = root.find("model" + std::to_string(chunks.size())))
    chunks.push_back(chunk);
  if (chunks.empty())
    throw FormatError(rank.path + ": no key \"model\": not a Megatron checkpoint");
  return chunks;
}

RankFile open_rank(int64_t tp, int64_t pp, const std::string& path, const SourceOptions& options) {
  return {tp, pp, path, open_torch_file(path, options)};
}

// "mp_rank_03", "mp_rank_03_001": ranks of a folder or file name.
std::optional<std::pair<int64_t, int64_t>> ranks_of(std::string_view name) {
  if (!name.starts_with("mp_rank_")) return std::nullopt;
  const std::vector<std::string_view> parts = split(name.substr(8), '_');
  const std::optional<int64_t> tp = whole_number(parts[0]);
  if (!tp || parts.size() > 2) return std::nullopt;
  const std::optional<int64_t> pp = parts.size() == 2 ? whole_number(parts[1]) : 0;
  if (!pp || *tp > kMaxRank || *pp > kMaxRank) return std::nullopt;
  return std::pair(*tp, *pp);
}

// The rank's file, not opened, that an entry of a checkpoint's folder is, or has.
std::optional<RankFile> rank_at(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  constexpr std::string_view kStates = "_model_states.pt";
  if (entry.is_directory()) {
    if (const auto place = ranks_of(name))
      for (const char* file : {"model_optim_rng.pt", "model_rng.pt"})
        if (fs::exists(entry.path() / file))
          return RankFile{place->first, place->second, (entry.path() / file).string(), nullptr};
  } else if (name.ends_with(kStates)) {
    if (const auto place = ranks_of(name.substr(0, name.size() - kStates.size())))
      return RankFile{place->first, place->second, entry.path().string(), nullptr};
  }
  return std::nullopt;
}

std::vector<RankFile> rank_files(const std::string& folder, const SourceOptions& options) {
  std::vector<RankFile> ranks;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (const std::optional<RankFile> rank = rank_at(entry))
      ranks.push_back(open_rank(rank->tp, rank->pp, rank->path, options));
  std::sort(ranks.begin(), ranks.end(), [](const RankFile& a, const RankFile& b) {
    return std::pair(a.pp, a.tp) < std::pair(b.pp, b.tp);
  });
  return ranks;
}

// Core's parameters are under their full names; in older versions, in dicts of dicts.
bool is_core(Value root) {
  return root.find("model").is(Kind::dict) && !root.find("model").find("language_model") &&
         !root.find("module");
}

void check_ranks(const std::vector<RankFile>& ranks, const std::string& path) {
  if (ranks.empty())
    throw FormatError(path + ": no mp_rank_* folder with model_optim_rng.pt: not a checkpoint" +
                      trainer::killed_conversion(path));
  const int64_t tp = ranks.back().tp + 1, pp = ranks.back().pp + 1;
  if (static_cast<int64_t>(ranks.size()) != tp * pp)
    throw FormatError(path + ": " + std::to_string(ranks.size()) + " ranks, expected " +
                      std::to_string(tp) + " tensor ranks on each of " + std::to_string(pp) +
                      " pipeline stages");
  for (size_t i = 0; i < ranks.size(); ++i)
    if (static_cast<int64_t>(i) != ranks[i].pp * tp + ranks[i].tp)
      throw FormatError(ranks[i].path + ": a rank of this number is there twice");
  const Value args = ranks[0].file->root().find("args");
  for (const auto& [name, found] : {std::pair("tensor_model_parallel_size", tp),
                                    std::pair("pipeline_model_parallel_size", pp)}) {
    const std::optional<int64_t> said = args.attribute(name).integer();
    if (said && *said != found)
      throw FormatError(path + ": files of " + std::to_string(found) + " ranks, but its " + name +
                        " is " + std::to_string(*said) +
                        (ranks.size() == 1 ? ": give the folder that holds all ranks" : ""));
  }
}

// Whole parameters, and copies with what they are copies of.
struct Collected {
  Shares shares;
  std::vector<Twins> twins;
};

// Layers in forward order: every stage's chunk 0, then every stage's chunk 1, ... `main` is null
// for what is not DeepSpeed's.
Collected collect(const std::vector<RankFile>& ranks, MainParameters* main) {
  const int64_t tp = ranks.back().tp + 1, pp = ranks.back().pp + 1;
  const size_t chunks = chunks_of(ranks[0]).size();
  Collected found;
  Shares& shares = found.shares;
  int64_t first_layer = 0;
  for (size_t chunk = 0; chunk < chunks; ++chunk)
    for (int64_t stage = 0; stage < pp; ++stage) {
      std::set<int64_t> layers;
      for (int64_t rank = 0; rank < tp; ++rank) {
        const RankFile& file = ranks[static_cast<size_t>(stage * tp + rank)];
        const std::vector<Value> models = chunks_of(file);
        if (models.size() != chunks)
          throw FormatError(file.path + ": another number of model chunks than its neighbours");
        for (auto& [name, source] : chunk_tensors(file, models[chunk], main)) {
          const LayerName local = split_layer(name);
          std::string whole = name == kHeadCopy ? kWords : name;
          if (local.layer >= 0) {
            layers.insert(local.layer);
            whole = layer_name(first_layer + local.layer, local.suffix);
          } else if (name == kHeadCopy || (stage > 0 && shares.contains(name) &&
                                           shares[name].size() == static_cast<size_t>(tp))) {
            // The last stage's copy of tied embeddings.
            if (shares.contains(whole) && shares[whole].size() > static_cast<size_t>(rank))
              found.twins.emplace_back(shares[whole][static_cast<size_t>(rank)], source);
            continue;
          }
          shares[whole].push_back(source);
        }
      }
      if (!layers.empty() && *layers.rbegin() + 1 != static_cast<int64_t>(layers.size()))
        throw FormatError(ranks[static_cast<size_t>(stage * tp)].path + ": layers are missing");
      first_layer += static_cast<int64_t>(layers.size());
    }
  for (const auto& [name, parts] : shares)
    if (static_cast<int64_t>(parts.size()) != tp)
      throw FormatError(parts[0].place + ": on " + std::to_string(parts.size()) + " of " +
                        std::to_string(tp) + " tensor ranks");
  return found;
}

void refuse_other_runs(const std::vector<RankFile>& ranks) {
  if (ranks.empty()) return;
  const bool core = is_core(ranks[0].file->root());
  for (size_t i = 1; i < ranks.size(); ++i) refuse_other_run(*ranks[0].file, *ranks[i].file, core);
}

// --- Megatron-DeepSpeed's pipeline files: layer_YY-model_ZZ-model_states.pt ----------------------

struct LayerFile {
  int64_t layer = 0;
  RankFile rank;
};

bool is_layer_file(const std::string& name) {
  return name.starts_with("layer_") && name.ends_with("-model_states.pt");
}

std::vector<LayerFile> layer_files(const std::string& folder, const SourceOptions& options) {
  std::vector<LayerFile> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!is_layer_file(name)) continue;
    const std::vector<std::string_view> parts = split(std::string_view(name).substr(6), '-');
    const std::optional<int64_t> layer = whole_number(parts[0]);
    std::optional<int64_t> tp = 0;
    if (parts.size() == 3 && parts[1].starts_with("model_")) tp = whole_number(parts[1].substr(6));
    if (!layer || !tp || *tp > kMaxRank) continue;
    files.push_back({*layer, open_rank(*tp, 0, entry.path(), options)});
  }
  std::sort(files.begin(), files.end(), [](const LayerFile& a, const LayerFile& b) {
    return std::pair(a.layer, a.rank.tp) < std::pair(b.layer, b.rank.tp);
  });
  return files;
}

// A layer file's keys say what it is; its number only gives the order.
Shares collect_layers(const std::vector<LayerFile>& files, MainParameters& main) {
  Shares shares;
  int64_t block = -1, block_file = -1;
  for (const LayerFile& file : files) {
    const std::map<std::string, TensorSource> raw =
        torch_weights(file.rank.file, file.rank.file->root());
    const bool is_block = std::any_of(raw.begin(), raw.end(), [](const auto& item) {
      return item.first.ends_with("query_key_value.weight");
    });
    if (is_block && file.layer != block_file) {
      ++block;
      block_file = file.layer;
    }
    for (auto& [name, source] : raw) {
      std::string full = is_block ? "encoder.layers." + std::to_string(block) + "." + name
                         : name.find("embeddings.") != std::string::npos ? "embedding." + name
                         : name == "weight" || name == "bias" ? "encoder.final_layernorm." + name
                         : name.starts_with("norm.")          ? "encoder.final_layer" + name
                         : name == "lm_head.weight"           ? "output_layer.weight"
                         : name == "final_linear.weight"      ? "output_layer.weight"
                                                              : name;
      const std::optional<std::string> core = core_name(full);
      if (!core) continue;
      std::vector<TensorSource>& parts = shares[*core];
      if (static_cast<int64_t>(parts.size()) == file.rank.tp)
        parts.push_back(main.of_layer(file.layer, file.rank.tp, name, source));
    }
  }
  return shares;
}

double checkpoint_version(Value root) { return root.find("checkpoint_version").real().value_or(0); }

QkvOrder order_of(double version, const std::string& path) {
  if (version == 0) return QkvOrder::stacked;
  if (version == 1) return QkvOrder::split_last;
  if (version == 2 || version == 3) return QkvOrder::grouped;
  throw FormatError(path + ": checkpoint_version " + std::to_string(version) +
                    ", expected 0, 1, 2 or 3");
}

CanonicalModel assemble(const Shares& shares, Value root, bool core, const std::string& path,
                        std::optional<double> version, const SourceOptions& options) {
  CanonicalModel model;
  const Value args = root.find("args");
  try {
    model.spec = spec_from_arguments(args, core);
  } catch (const FormatError& e) {
    throw FormatError(path + ": " + e.what());
  }
  if (options.num_attention_heads) {
    model.spec.num_attention_heads = *options.num_attention_heads;
    if (!args) model.spec.num_query_groups = *options.num_attention_heads;
  }
  if (model.spec.num_attention_heads == 0)
    throw FormatError(path + ": holds no arguments: give --num-attention-heads");
  if (!options.activation.empty()) model.spec.activation = activation_from_name(options.activation);
  model.tokenizer = hints_from_arguments(args);
  model.iteration = root.find("iteration").integer().value_or(0);
  add_core_tensors(model, shares, order_of(version.value_or(checkpoint_version(root)), path));
  const auto on = [&](const char* name) { return args.attribute(name).integer().value_or(0) != 0; };
  if (on("apply_layernorm_1p") || on("layernorm_zero_centered_gamma")) {
    for (auto& [name, source] : model.tensors)
      if (name.ends_with("layernorm.weight")) source = add_one(source);
    if (model.dtype != "F32")
      model.notes.push_back(path +
                            ": its norms are stored less one, and adding one rounds them to " +
                            model.dtype + "; --dtype fp32 does not");
  }
  return model;
}

// Says where what several ranks hold whole is not the same on all of them: ranks drift apart in
// training where their sums have no fixed order, so this alone is no error.
void compare_copies(Collected found, CanonicalModel& model) {
  const auto head = found.shares.find("output_layer.weight");
  if (model.spec.tied_embeddings && head != found.shares.end())
    for (size_t rank = 0; rank < head->second.size(); ++rank)
      found.twins.emplace_back(found.shares.at(kWords).at(rank), head->second[rank]);
  const std::string differing = differing_copy(found.shares, found.twins);
  if (!differing.empty()) model.notes.push_back(differing + ", which is taken");
}

// Says that main parameters which are there were not read.
void note_main(const std::string& why, CanonicalModel& model) {
  if (!why.empty()) model.notes.push_back(why);
}

// The same for Megatron-LM's optimizer, whose state is with the model's or beside it.
void note_optimizer(bool is_there, const std::string& path, const SourceOptions& options,
                    CanonicalModel& model) {
  if (options.prefer_main && is_there && model.dtype != "F32")
    model.notes.push_back(path + ": the optimizer's fp32 weights are not read, those of 16 bits " +
                          "are taken in their place");
}

// Whole tensors, so one share of each. A gated MLP's two halves may be two tensors, _w and _v.
CanonicalModel read_torch_dist(const std::string& folder, const SourceOptions& options) {
  const TorchDist checkpoint(folder, options.checksums);
  Shares shares;
  for (const auto& [name, source] : checkpoint.tensors()) {
    if (name.ends_with("_v")) continue;  // goes with its _w
    std::string whole = name;
    TensorSource tensor = source;
    if (name.ends_with("_w")) {
      whole = name.substr(0, name.size() - 2);
      const auto up = checkpoint.tensors().find(whole + "_v");
      if (up == checkpoint.tensors().end())
        throw FormatError(folder + ": " + name + " without " + whole + "_v");
      tensor = join_rows({source, up->second});
    }
    std::optional<std::string> core;
    try {
      core = core_name(whole);
    } catch (const FormatError& e) {
      throw FormatError(folder + ": " + e.what());
    }
    if (!core) continue;
    if (!shares[*core].empty()) throw FormatError(folder + ": two parameters are called " + *core);
    shares[*core].push_back(std::move(tensor));
  }
  if (!checkpoint.common() && !options.num_attention_heads)
    throw FormatError(folder + "/common.pt: is missing, and with it the model's arguments; " +
                      ".metadata has no common_state either");
  CanonicalModel model = assemble(shares, checkpoint.common(), true, folder, 3, options);
  note_optimizer(checkpoint.has_optimizer(), folder, options, model);
  refuse_other_head(shares, model.spec, kTied);
  return model;
}

CanonicalModel read_zero(const std::string& folder, int64_t tensor_ranks,
                         const SourceOptions& options) {
  Shares shares;
  std::vector<ZeroRank> ranks;
  for (int64_t tp = 0; tp < tensor_ranks; ++tp) {
    ranks.push_back(read_zero_rank(folder, tp, options.checksums));
    for (const auto& [name, source] : ranks.back().tensors) {
      try {
        if (const std::optional<std::string> core = core_name(name))
          shares[*core].push_back(source);
      } catch (const FormatError& e) {
        throw FormatError(folder + ": " + e.what());
      }
    }
    refuse_other_run(*ranks[0].states, *ranks.back().states, false);
  }
  const Value root = ranks[0].states->root();
  const double version = root.find("checkpoint_version") ? checkpoint_version(root) : 3;
  CanonicalModel model = assemble(shares, root, false, folder, version, options);
  refuse_other_head(shares, model.spec, kTied);
  compare_copies({std::move(shares), {}}, model);
  return model;
}

}  // namespace

std::shared_ptr<TorchFile> open_torch_file(const std::string& path, const SourceOptions& options) {
  auto file = std::make_shared<TorchFile>(path, options.checksums);
  const std::vector<std::string>& foreign = file->pickle().foreign_classes();
  if (options.strict_pickle && !foreign.empty())
    throw FormatError(path + ": class " + foreign[0] + " is not understood (--strict-pickle)");
  return file;
}

bool is_megatron_checkpoint(const std::string& folder) {
  if (!fs::is_directory(folder)) return false;
  if (TorchDist::is_at(folder) || zero_tensor_ranks(folder) > 0) return true;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (is_layer_file(entry.path().filename().string()) || rank_at(entry)) return true;
  return false;
}

bool is_megatron_root(const std::string& folder) {
  const auto has = [&](const char* name) { return fs::exists(folder + "/" + name); };
  return has("latest_checkpointed_iteration.txt") || (has("latest") && !has("trainer_state.json"));
}

std::string resolve_checkpoint(const std::string& path, std::optional<int64_t> iteration) {
  const fs::path root(path);
  if (!fs::is_directory(root)) return path;
  const auto folder = [&](int64_t number) {
    char name[32];
    std::snprintf(name, sizeof name, "iter_%07lld", static_cast<long long>(number));
    const fs::path of_deepspeed = root / ("global_step" + std::to_string(number));
    return fs::exists(root / name) || !fs::exists(of_deepspeed) ? root / name : of_deepspeed;
  };
  fs::path found = root;
  // Megatron-DeepSpeed writes both trackers, but reads DeepSpeed's.
  if (iteration) {
    found = folder(*iteration);
  } else if (fs::exists(root / "latest")) {
    found = root / first_line(root / "latest");
  } else if (fs::exists(root / "latest_checkpointed_iteration.txt")) {
    const std::string text = first_line(root / "latest_checkpointed_iteration.txt");
    const std::optional<int64_t> number = whole_number(text);
    if (!number && text != "release")
      throw FormatError((root / "latest_checkpointed_iteration.txt").string() + ": \"" + text +
                        "\" is neither a number nor release");
    found = number ? folder(*number) : root / "release";
  }
  if (!fs::is_directory(found))
    throw FormatError(found.string() + ": no such checkpoint" +
                      (iteration ? "" : ", though " + path + " names it as its latest"));
  return found.string();
}

namespace {

// A folder of checkpoints without its tracker does not say which of them is meant.
void refuse_root(const std::string& folder) {
  if (is_megatron_checkpoint(folder)) return;
  std::string last;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if ((name.starts_with("iter_") || name.starts_with("global_step") || name == "release") &&
        is_megatron_checkpoint(entry.path().string()))
      last = std::max(last, entry.path().string());
  }
  if (!last.empty())
    throw FormatError(folder +
                      ": no latest_checkpointed_iteration.txt says which of its folders "
                      "is meant: give one, as " +
                      last + ", or --iteration");
}

}  // namespace

namespace {

// The files of ranks that hold all of their modules.
CanonicalModel read_ranks(const std::vector<RankFile>& ranks, const std::string& place,
                          std::optional<double> version, const SourceOptions& options) {
  const Value root = ranks[0].file->root();
  const std::string beside = fs::path(ranks[0].path).parent_path().string();
  MainParameters main(beside.empty() ? "." : beside, options);
  const bool of_deepspeed = root.find("module").is(Kind::dict);
  Collected found = collect(ranks, of_deepspeed ? &main : nullptr);
  CanonicalModel model = assemble(found.shares, root, is_core(root), place, version, options);
  if (of_deepspeed)
    note_main(main.note(), model);
  else
    note_optimizer(
        root.find("optimizer").size() > 0 || fs::exists(fs::path(beside) / "distrib_optim.pt"),
        ranks[0].path, options, model);
  compare_copies(std::move(found), model);
  return model;
}

}  // namespace

CanonicalModel read_megatron(const std::string& path, const SourceOptions& options) {
  const std::string place = resolve_checkpoint(path, options.iteration);
  if (!fs::is_directory(place)) {
    const std::vector<RankFile> ranks = {open_rank(0, 0, place, options)};
    chunks_of(ranks[0]);
    check_ranks(ranks, place);
    return read_ranks(ranks, place, std::nullopt, options);
  }
  if (is_neox_checkpoint(place)) return read_neox(place, options);
  if (TorchDist::is_at(place)) return read_torch_dist(place, options);
  if (const int64_t ranks = zero_tensor_ranks(place); ranks > 0)
    return read_zero(place, ranks, options);
  refuse_root(place);
  const std::vector<LayerFile> layers = layer_files(place, options);
  const std::vector<RankFile> ranks = rank_files(place, options);
  refuse_other_runs(ranks);
  if (!layers.empty()) {
    const Value root = ranks.empty() ? Value() : ranks[0].file->root();
    const double version = root && root.find("checkpoint_version") ? checkpoint_version(root) : 3;
    MainParameters main(place, options);
    Collected found{collect_layers(layers, main), {}};
    CanonicalModel model = assemble(found.shares, root, is_core(root), place, version, options);
    note_main(main.note(), model);
    refuse_other_head(found.shares, model.spec, kTied);
    compare_copies(std::move(found), model);
    return model;
  }
  check_ranks(ranks, place);
  const Value root = ranks[0].file->root();
  std::optional<double> version;
  if (root.find("module") && !root.find("checkpoint_version"))
    version = 3;  // DeepSpeed came after version 3
  return read_ranks(ranks, place, version, options);
}

}  // namespace convert
