// SPDX-License-Identifier: MIT
// neox_source.h: the parts of a checkpoint, names, how tensor parallelism divides each parameter,
// and the configurations.
#include "convert/neox_source.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "convert/main_parameters.h"
#include "convert/megatron_names.h"
#include "convert/rank_agreement.h"
#include "convert/torch_weights.h"
#include "libindexed/format.h"
#include "libindexed/mapped_file.h"
#include "tools/cli/flags.h"
#include "trainer/config/flags.h"
#include "trainer/spec/model_fields.h"

namespace convert {
namespace {

using indexed::FormatError;
namespace fs = std::filesystem;

using Weights = std::map<std::string, TensorSource>;
using Shares = std::map<std::string, std::vector<TensorSource>>;

constexpr std::string_view kEnd = "-model_states.pt", kRankEnd = "_model_states.pt";
constexpr int64_t kMaxNumber = int64_t{1} << 20;

// 12 from "12..."; removes it from `text`.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t value = 0;
  const std::from_chars_result end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc() || value < 0 || value > kMaxNumber) return {};
  text.remove_prefix(static_cast<size_t>(end.ptr - text.data()));
  return value;
}

bool take_word(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

// Module `layer` of the model on tensor-parallel rank `rank`.
struct Part {
  int64_t layer = 0, rank = 0;
  auto operator<=>(const Part&) const = default;
};

// "layer_02-model_01-model_states.pt".
std::optional<Part> layer_part(std::string_view name) {
  if (!take_word(name, "layer_")) return {};
  const std::optional<int64_t> layer = take_number(name);
  if (!layer || !take_word(name, "-model_")) return {};
  const std::optional<int64_t> rank = take_number(name);
  if (!rank || name != kEnd) return {};
  return Part{*layer, *rank};
}

// "mp_rank_01_model_states.pt".
std::optional<int64_t> rank_of(std::string_view name) {
  if (!take_word(name, "mp_rank_")) return {};
  const std::optional<int64_t> rank = take_number(name);
  return rank && name == kRankEnd ? rank : std::nullopt;
}

std::map<int64_t, std::string> rank_paths(const std::string& folder) {
  std::map<int64_t, std::string> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (const auto rank = rank_of(entry.path().filename().string()))
      paths[*rank] = entry.path().string();
  return paths;
}

// The modules of a rank's file without a pipeline: "sequential.2.attention.dense.weight".
void add_modules(const std::string& path, int64_t rank, const SourceOptions& options,
                 std::map<Part, Weights>& parts) {
  const std::shared_ptr<TorchFile> file = open_torch_file(path, options);
  for (auto& [name, source] : torch_weights(file, file->root().find("module"))) {
    std::string_view rest = name;
    const bool numbered = take_word(rest, "sequential.");
    const std::optional<int64_t> layer = take_number(rest);
    if (!numbered || !layer || !take_word(rest, "."))
      throw FormatError(path + ": parameter " + name + " is not one of GPT-NeoX's");
    parts[{*layer, rank}][std::string(rest)] = std::move(source);
  }
}

std::map<Part, Weights> read_parts(const std::string& folder, const SourceOptions& options) {
  std::map<Part, Weights> parts;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const auto part = layer_part(entry.path().filename().string());
    if (!part) continue;
    const std::shared_ptr<TorchFile> file = open_torch_file(entry.path().string(), options);
    parts[*part] = torch_weights(file, file->root());
  }
  if (parts.empty())
    for (const auto& [rank, path] : rank_paths(folder)) add_modules(path, rank, options, parts);
  // Layers without parameters may have a file too.
  std::erase_if(parts, [](const auto& part) { return part.second.empty(); });
  return parts;
}

bool is_block(const Weights& weights) {
  return weights.contains("attention.query_key_value.weight");
}

// What the first linears of the MLPs are called. Until September 2024 it is dense_h_to_4h, or w1,
// the gate, and w3, which it multiplies; since then linear1.
enum class Release : uint8_t { unknown, named, llama, numbered };

Release release_of(std::string_view name) {
  return name.starts_with("mlp.linear1.")                             ? Release::numbered
         : name.starts_with("mlp.w1.") || name.starts_with("mlp.w3.") ? Release::llama
         : name.starts_with("mlp.dense_h_to_4h.")                     ? Release::named
                                                                      : Release::unknown;
}

// A parameter's Megatron name.
std::string megatron_name(std::string name, int64_t block) {
  for (const auto& [own, known] :
       {std::pair(".scale", ".weight"), std::pair("mlp.linear1.", "mlp.dense_h_to_4h."),
        std::pair("mlp.linear2.", "mlp.dense_4h_to_h."), std::pair("mlp.w1.", "mlp.dense_h_to_4h."),
        std::pair("mlp.w2.", "mlp.dense_4h_to_h.")})
    if (const size_t at = name.find(own); at != std::string::npos)
      name.replace(at, std::string_view(own).size(), known);
  if (block >= 0) return "encoder.layers." + std::to_string(block) + "." + name;
  if (name.starts_with("norm.")) return "encoder.final_layer" + name;
  if (name == "final_linear.weight") return "output_layer.weight";
  return "embedding." + name;
}

// Every parameter's shards, in the order of ranks. "mlp.w3.weight" is under its own name.
struct Collected {
  Shares shares;
  Release release = Release::unknown;
};
constexpr std::string_view kUp = "mlp.w3.weight";

Collected collect(const std::map<Part, Weights>& parts, const std::string& folder,
                  MainParameters& main) {
  if (parts.empty()) throw FormatError(folder + ": no layers there");
  Collected found;
  Shares& shares = found.shares;
  int64_t block = -1, block_layer = -1, ranks = 0;
  for (const auto& [part, weights] : parts) ranks = std::max(ranks, part.rank + 1);
  for (const auto& [part, weights] : parts) {
    const bool in_block = is_block(weights);
    if (in_block && part.layer != block_layer) {
      ++block;
      block_layer = part.layer;
    }
    for (const auto& [name, source] : weights) {
      const Release release = in_block ? release_of(name) : Release::unknown;
      if (found.release == Release::unknown) found.release = release;
      if (release != Release::unknown && release != found.release)
        throw FormatError(source.place + ": the MLPs before it have other names");
      std::optional<std::string> core;
      try {
        core = in_block && name == kUp ? layer_name(block, kUp)
                                       : core_name(megatron_name(name, in_block ? block : -1));
      } catch (const FormatError& e) {
        throw FormatError(source.place + ": " + e.what());
      }
      if (!core) continue;
      std::vector<TensorSource>& all = shares[*core];
      const bool full = static_cast<int64_t>(all.size()) == ranks;
      if (full && *core == "embedding.word_embeddings.weight") continue;  // the tied head's copy
      if (static_cast<int64_t>(all.size()) != part.rank)
        throw FormatError(source.place + ": rank " + std::to_string(all.size()) +
                          "'s part is missing, or there are two of this");
      all.push_back(main.of_layer(part.layer, part.rank, name, source));
    }
  }
  for (const auto& [name, all] : shares)
    if (static_cast<int64_t>(all.size()) != ranks)
      throw FormatError(all[0].place + ": on " + std::to_string(all.size()) + " of " +
                        std::to_string(ranks) + " tensor-parallel ranks");
  return found;
}

// Each rank's gate, then what it multiplies; linear1 has the gate last.
void gate_first(Collected& found, bool gated) {
  Shares& shares = found.shares;
  const Release release = found.release;
  for (auto& [name, all] : shares) {
    const LayerName place = split_layer(name);
    if (!place.suffix.starts_with("mlp.linear_fc1.")) continue;
    if (gated ? release == Release::named : release == Release::llama)
      throw FormatError(all[0].place + (gated
                                            ? ": has no gate in GPT-NeoX, which the configuration "
                                              "asks for"
                                            : ": has a gate, which the configuration does not "
                                              "ask for: give all files of the run"));
    if (!gated) continue;
    const auto up = shares.find(layer_name(place.layer, kUp));
    if (release == Release::llama && up == shares.end())
      throw FormatError(all[0].place + ": without mlp.w3.weight");
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const int64_t half = all[rank].rows() / 2;
      all[rank] = release == Release::llama
                      ? join_rows({all[rank], up->second[rank]})
                      : join_rows({slice_rows(all[rank], half, all[rank].rows() - half),
                                   slice_rows(all[rank], 0, half)});
    }
  }
  std::erase_if(shares, [](const auto& one) { return split_layer(one.first).suffix == kUp; });
}

// The order of query_key_value's rows. Of grouped heads GPT-NeoX's pull request 1315, of November
// 2024, changed it, and nothing in a checkpoint tells; linear1 came two months before.
QkvOrder order_of(const trainer::ModelSpec& spec, Release release, const std::string& folder,
                  std::vector<std::string>& notes) {
  if (spec.num_query_groups == spec.num_attention_heads) return QkvOrder::grouped;
  if (release != Release::numbered) return QkvOrder::neox_by_head;
  notes.push_back(folder +
                  ": query_key_value of grouped heads is read as GPT-NeoX reads it since November "
                  "2024; of a run from September or October 2024 the model is wrong");
  return QkvOrder::neox_stacked;
}

// a + b, added in fp32, in their dtype by round_computed().
TensorSource sum_of(const TensorSource& a, const TensorSource& b) {
  if (a.shape != b.shape || a.dtype != b.dtype)
    throw FormatError(b.place + ": another shape than " + a.place);
  TensorSource sum = convert_dtype(a, "F32");
  sum.read_rows = [a = sum.read_rows, b = convert_dtype(b, "F32").read_rows, row = sum.row_bytes()](
                      int64_t first, int64_t count, std::byte* out) {
    std::vector<float> x(static_cast<size_t>(count * row) / sizeof(float)), y(x.size());
    a(first, count, reinterpret_cast<std::byte*>(x.data()));
    b(first, count, reinterpret_cast<std::byte*>(y.data()));
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
    std::copy_n(reinterpret_cast<const std::byte*>(x.data()), count * row, out);
  };
  return round_computed(sum, a.dtype);
}

// With a parallel residual each rank adds its own bias to its term of the sum; otherwise the bias
// is added after the sum, and all ranks have the same one.
void sum_biases(Shares& shares) {
  for (auto& [name, all] : shares) {
    if (!name.ends_with("linear_proj.bias") && !name.ends_with("linear_fc2.bias")) continue;
    TensorSource sum = all[0];
    for (size_t rank = 1; rank < all.size(); ++rank) sum = sum_of(sum, all[rank]);
    all.assign(all.size(), sum);
  }
}

// Older releases divide the output layer by columns, with output_layer_parallelism: row, which was
// their default. The shape says which it is; here it is divided by rows.
void divide_head_by_rows(Shares& shares, int64_t hidden_size) {
  const auto found = shares.find("output_layer.weight");
  if (found == shares.end()) return;
  std::vector<TensorSource>& all = found->second;
  const auto ranks = static_cast<int64_t>(all.size());
  if (ranks < 2 || all[0].shape.size() != 2 || all[0].shape[1] * ranks != hidden_size ||
      all[0].shape[0] % ranks != 0)
    return;
  const TensorSource whole = join_columns(all);
  const int64_t rows = whole.rows() / ranks;
  for (int64_t rank = 0; rank < ranks; ++rank)
    all[static_cast<size_t>(rank)] = slice_rows(whole, rank * rows, rows);
}

// Parameters that are not divided are trained on each rank, with the same gradients.
void note_copies(const Shares& shares, CanonicalModel& model) {
  for (const auto& [name, all] : shares) {
    if (share_of(name) != Share::same) continue;
    for (size_t rank = 1; rank < all.size(); ++rank) {
      if (all[rank].shape == all[0].shape && all[rank].load() == all[0].load()) continue;
      model.notes.push_back(all[rank].place +
                            ": is not the same as on tensor-parallel rank 0, whose copies of what "
                            "is not divided are taken");
      return;
    }
  }
}

trainer::NamedText read_text(const std::string& path) {
  const indexed::MappedFile file(path);
  return {path, {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}};
}

std::vector<trainer::NamedText> configurations(const std::string& folder,
                                               const SourceOptions& options) {
  std::vector<std::string> paths = options.neox_configs;
  const std::string beside = folder + "/configs";
  if (paths.empty() && fs::is_directory(beside))
    for (const fs::directory_entry& entry : fs::directory_iterator(beside))
      if (entry.is_regular_file()) paths.push_back(entry.path().string());
  if (paths.empty())
    throw FormatError(folder +
                      ": no configs beside it, and the weights do not say how they are "
                      "computed with: give --neox-config FILE...");
  std::sort(paths.begin(), paths.end());
  std::vector<trainer::NamedText> texts;
  for (const std::string& path : paths) texts.push_back(read_text(path));
  return texts;
}

trainer::TrainConfig read_configurations(const std::string& folder, const SourceOptions& options,
                                         std::vector<std::string>& notes) {
  trainer::TrainConfig config;
  try {
    notes = trainer::apply_neox_model(config, configurations(folder, options));
  } catch (const cli::UsageError& e) {
    throw FormatError(e.what());
  }
  return config;
}

// Sizes given by both the checkpoint's arguments and its configurations must agree.
void settle(std::optional<int64_t>& config, Value args, const char* name, const std::string& path) {
  const std::optional<int64_t> said = args ? args.find(name).integer() : std::nullopt;
  if (said && config && *said != *config)
    throw FormatError(path + ": its " + name + " is " + std::to_string(*said) +
                      ", but the configuration's is " + std::to_string(*config));
  if (!config) config = said;
}

trainer::ModelSpec spec_of(const trainer::TrainConfig& config) {
  trainer::ModelSpec spec;
  const auto set = [&](const char* field, const std::string& word) {
    trainer::set_field(trainer::model_field(field), spec, word, true);
  };
  spec.num_layers = config.num_layers.value_or(0);
  spec.hidden_size = config.hidden_size.value_or(0);
  spec.ffn_hidden_size = config.ffn_hidden_size.value_or(0);
  spec.num_attention_heads = config.num_attention_heads.value_or(0);
  spec.num_query_groups = config.num_query_groups.value_or(spec.num_attention_heads);
  spec.max_position_embeddings = config.max_position_embeddings.value_or(0);
  set("norm", config.normalization);
  set("position", config.position_embedding_type);
  set("activation", config.activation);
  spec.norm_epsilon = static_cast<float>(config.norm_epsilon);
  spec.position_offset = config.position_offset;
  spec.rotary_percent = static_cast<float>(config.rotary_percent);
  spec.rotary_base = static_cast<float>(config.rotary_base);
  spec.sliding_window = config.sliding_window;
  spec.parallel_residual = config.parallel_residual;
  spec.linear_bias = config.add_bias_linear;
  spec.attention_bias = config.attention_bias;
  spec.mlp_bias = config.mlp_bias;
  spec.tied_embeddings = !config.untie_embeddings_and_output_weights;
  spec.hidden_dropout = static_cast<float>(config.hidden_dropout);
  spec.attention_dropout = static_cast<float>(config.attention_dropout);
  return spec;
}

}  // namespace

bool is_neox_checkpoint(const std::string& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const auto part = layer_part(entry.path().filename().string());
    if (part && part->layer == 0) return true;
  }
  const std::map<int64_t, std::string> ranks = rank_paths(folder);
  if (ranks.empty()) return false;
  const TorchFile first(ranks.begin()->second);
  const Value module = first.root().find("module");
  return module.is(Kind::dict) && module.size() > 0 &&
         module.key(0).text().starts_with("sequential.");
}

CanonicalModel read_neox(const std::string& folder, const SourceOptions& options) {
  CanonicalModel model;
  trainer::TrainConfig config = read_configurations(folder, options, model.notes);
  const std::map<int64_t, std::string> ranks = rank_paths(folder);
  if (!ranks.empty()) {
    const std::shared_ptr<TorchFile> first = open_torch_file(ranks.begin()->second, options);
    const Value args = first->root().find("args");
    settle(config.num_layers, args, "num_layers", first->path());
    settle(config.hidden_size, args, "hidden_size", first->path());
    settle(config.num_attention_heads, args, "num_attention_heads", first->path());
    settle(config.max_position_embeddings, args, "max_position_embeddings", first->path());
    model.iteration = first->root().find("iteration").integer().value_or(0);
  }
  model.spec = spec_of(config);
  if (model.spec.num_attention_heads < 1)
    throw FormatError(folder + ": its configuration has no num_attention_heads");
  if (!options.activation.empty())
    throw FormatError(folder + ": --activation: GPT-NeoX's configuration says it");
  model.tokenizer = {.type = config.tokenizer_type,
                     .vocab_file = config.vocab_file,
                     .merge_file = config.merge_file};
  MainParameters main(folder, options);
  Collected found = collect(read_parts(folder, options), folder, main);
  Shares& shares = found.shares;
  if (!main.note().empty()) model.notes.push_back(main.note());
  divide_head_by_rows(shares, model.spec.hidden_size);
  refuse_other_head(shares, model.spec,
                    "no-weight-tying is not true in the configuration: give all files of the run");
  if (model.spec.parallel_residual) sum_biases(shares);
  gate_first(found, model.spec.gated());
  note_copies(shares, model);
  const QkvOrder order = order_of(model.spec, found.release, folder, model.notes);
  try {
    add_core_tensors(model, shares, order);
  } catch (const FormatError& e) {
    const std::string what = e.what();
    throw FormatError(what.starts_with(folder) ? what : folder + ": " + what);
  }
  return model;
}

}  // namespace convert
