// SPDX-License-Identifier: MIT
// trainer_source.h: meta.json's numbers and tensors as a canonical model, and back.
#include "convert/trainer_source.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>

#include "convert/megatron_source.h"
#include "convert/megatron_target.h"
#include "libindexed/format.h"
#include "libindexed/manifest.h"
#include "libindexed/output_file.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/safetensors.h"

namespace convert {
namespace {

using indexed::FormatError;
using trainer::ModelSpec;
using Texts = std::map<std::string, std::string>;

struct IntegerField {
  const char* name;
  int64_t ModelSpec::*member;
};
constexpr IntegerField kIntegers[] = {
    {"num_layers", &ModelSpec::num_layers},
    {"hidden_size", &ModelSpec::hidden_size},
    {"ffn_hidden_size", &ModelSpec::ffn_hidden_size},
    {"num_attention_heads", &ModelSpec::num_attention_heads},
    {"num_query_groups", &ModelSpec::num_query_groups},
    {"kv_channels", &ModelSpec::kv_channels},
    {"max_position_embeddings", &ModelSpec::max_position_embeddings},
    {"vocab_size", &ModelSpec::vocab_size},
    {"padded_vocab_size", &ModelSpec::padded_vocab_size},
    {"position_offset", &ModelSpec::position_offset},
};

struct RealField {
  const char* name;
  float ModelSpec::*member;
};
constexpr RealField kReals[] = {
    {"norm_epsilon", &ModelSpec::norm_epsilon},
    {"rotary_percent", &ModelSpec::rotary_percent},
    {"rotary_base", &ModelSpec::rotary_base},
    {"hidden_dropout", &ModelSpec::hidden_dropout},
    {"attention_dropout", &ModelSpec::attention_dropout},
    {"init_method_std", &ModelSpec::init_method_std},
};

struct BoolField {
  const char* name;
  bool ModelSpec::*member;
};
constexpr BoolField kBools[] = {
    {"parallel_residual", &ModelSpec::parallel_residual},
    {"linear_bias", &ModelSpec::linear_bias},
    {"tied_embeddings", &ModelSpec::tied_embeddings},
};

template <class E>
struct Word {
  const char* name;
  E value;
};
constexpr Word<ops::Norm> kNorms[] = {{"layernorm", ops::Norm::layernorm},
                                      {"rmsnorm", ops::Norm::rmsnorm}};
constexpr Word<trainer::Position> kPositions[] = {{"learned", trainer::Position::learned},
                                                  {"rotary", trainer::Position::rotary},
                                                  {"none", trainer::Position::none}};
constexpr Word<ops::Activation> kActivations[] = {{"none", ops::Activation::none},
                                                  {"gelu_tanh", ops::Activation::gelu_tanh},
                                                  {"gelu_erf", ops::Activation::gelu_erf},
                                                  {"relu", ops::Activation::relu},
                                                  {"swiglu", ops::Activation::swiglu}};

template <class E, size_t N>
const char* word_of(const Word<E> (&table)[N], E value) {
  for (const Word<E>& row : table)
    if (row.value == value) return row.name;
  return "";
}

[[noreturn]] void refuse(const std::string& name, const std::string& text) {
  throw FormatError("model." + name + ": \"" + text + "\" is not a value for it");
}

template <class E, size_t N>
void set_word(const Word<E> (&table)[N], const Texts& texts, const std::string& name, E& value) {
  const auto found = texts.find(name);
  if (found == texts.end()) return;
  for (const Word<E>& row : table)
    if (found->second == row.name) {
      value = row.value;
      return;
    }
  refuse(name, found->second);
}

template <class T>
void set_number(const Texts& texts, const std::string& name, T& value) {
  const auto found = texts.find(name);
  if (found == texts.end()) return;
  const std::string& text = found->second;
  const std::from_chars_result end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size()) refuse(name, text);
}

std::string first_of(const std::map<std::string, std::vector<std::string>>& config,
                     const char* name) {
  const auto found = config.find(name);
  return found == config.end() || found->second.empty() ? "" : found->second[0];
}

// The id that ended the documents of a run: its --eod-id, else that of the first of its datasets
// whose manifest is on this machine; -1 where neither says.
int64_t end_of_document(const trainer::CheckpointMeta& meta) {
  const std::string given = first_of(meta.config, "eod-id");
  int64_t id = -1;
  if (!given.empty()) std::from_chars(given.data(), given.data() + given.size(), id);
  if (id >= 0) return id;
  for (const char* flag : {"data-path", "train-data-path"}) {
    const auto words = meta.config.find(flag);
    if (words == meta.config.end()) continue;
    for (const std::string& word : words->second) {
      try {
        const std::optional<indexed::Manifest> manifest = indexed::read_manifest(word);
        if (manifest && manifest->provenance.eod_token >= 0) return manifest->provenance.eod_token;
      } catch (const std::exception&) {
        continue;  // a damaged manifest says nothing, and is no reason not to convert
      }
    }
  }
  return -1;
}

TensorSource checkpoint_source(const std::shared_ptr<trainer::Checkpoint>& file,
                               const trainer::TensorRecord& record) {
  TensorSource source{record.dtype, record.shape, {}, file->path() + ": " + record.name};
  source.read_rows = [file, &record, row = source.row_bytes(), size = source.element_bytes()](
                         int64_t first, int64_t count, std::byte* out) {
    trainer::Piece piece = trainer::Piece::whole(record.shape);
    piece.first = first * row / size;
    piece.count = count * row / size;
    file->read(record, piece, {out, static_cast<size_t>(count * row)});
  };
  return source;
}

// Bytes of a tensor from anywhere in it, in order. What cannot be read by rows is loaded once, and
// let go at its end.
std::function<void(int64_t, std::span<std::byte>)> filler(const TensorSource& source) {
  return [source, whole = std::vector<std::byte>()](int64_t at, std::span<std::byte> out) mutable {
    const int64_t size = static_cast<int64_t>(out.size()), row = source.row_bytes();
    if (!source.by_rows) {
      if (at == 0) whole = source.load();
      std::memcpy(out.data(), whole.data() + at, out.size());
      if (at + size == source.bytes()) whole = {};
      return;
    }
    const int64_t first = at / row, end = (at + size + row - 1) / row;
    std::vector<std::byte> rows(static_cast<size_t>((end - first) * row));
    source.read_rows(first, end - first, rows.data());
    std::memcpy(out.data(), rows.data() + (at - first * row), out.size());
  };
}

}  // namespace

Texts spec_to_texts(const ModelSpec& spec) {
  Texts texts;
  for (const IntegerField& field : kIntegers)
    texts[field.name] = std::to_string(spec.*field.member);
  for (const RealField& field : kReals) {
    char text[32];
    const std::to_chars_result end = std::to_chars(text, text + sizeof text, spec.*field.member);
    texts[field.name] = std::string(text, end.ptr);
  }
  for (const BoolField& field : kBools) texts[field.name] = spec.*field.member ? "true" : "false";
  texts["family"] = spec.family;
  texts["norm"] = word_of(kNorms, spec.norm);
  texts["position"] = word_of(kPositions, spec.position);
  texts["activation"] = word_of(kActivations, spec.activation);
  return texts;
}

ModelSpec spec_from_texts(const Texts& texts) {
  ModelSpec spec;
  for (const IntegerField& field : kIntegers) set_number(texts, field.name, spec.*field.member);
  for (const RealField& field : kReals) set_number(texts, field.name, spec.*field.member);
  for (const BoolField& field : kBools) {
    const auto found = texts.find(field.name);
    if (found == texts.end()) continue;
    if (found->second != "true" && found->second != "false") refuse(field.name, found->second);
    spec.*field.member = found->second == "true";
  }
  set_word(kNorms, texts, "norm", spec.norm);
  set_word(kPositions, texts, "position", spec.position);
  set_word(kActivations, texts, "activation", spec.activation);
  const auto family = texts.find("family");
  if (family != texts.end()) spec.family = family->second;
  return spec;
}

bool is_trainer_checkpoint(const std::string& path, std::optional<int64_t> iteration) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(path)) return false;
  if (fs::exists(path + "/meta.json")) return true;
  const std::vector<int64_t> stored = trainer::stored_iterations(path);
  return !stored.empty() &&
         (!iteration || std::find(stored.begin(), stored.end(), *iteration) != stored.end());
}

CanonicalModel read_trainer_checkpoint(const std::string& path, std::optional<int64_t> iteration,
                                       bool prefer_main) {
  const std::optional<std::string> folder = trainer::find_checkpoint(path, iteration);
  if (!folder) throw FormatError(path + ": no checkpoint there");
  const auto file = std::make_shared<trainer::Checkpoint>(trainer::Checkpoint::open(*folder));
  const trainer::CheckpointMeta& meta = file->meta();
  CanonicalModel model;
  try {
    model.spec = spec_from_texts(meta.model);
    std::map<std::string, std::vector<TensorSource>> tensors;
    for (const trainer::TensorRecord& record : meta.tensors) {
      if (record.group != "model") continue;
      const trainer::TensorRecord* main = prefer_main ? meta.find("main", record.name) : nullptr;
      tensors[record.name] = {checkpoint_source(file, main != nullptr ? *main : record)};
    }
    if (model.spec.num_attention_heads < 1)
      throw FormatError("model.num_attention_heads is missing");
    const int64_t real_rows = model.spec.vocab_size;
    add_core_tensors(model, tensors, QkvOrder::grouped);
    model.spec.vocab_size = real_rows;
  } catch (const FormatError& e) {
    const std::string what = e.what();
    throw FormatError(what.starts_with(*folder) ? what : *folder + "/meta.json: " + what);
  }
  model.tokenizer = {first_of(meta.config, "tokenizer-type"), first_of(meta.config, "vocab-file"),
                     first_of(meta.config, "merge-file"), first_of(meta.config, "tokenizer-model"),
                     end_of_document(meta)};
  model.iteration = meta.state.iteration;
  return model;
}

void write_trainer_checkpoint(const CanonicalModel& model, const std::string& path,
                              int64_t divisible_by) {
  CanonicalModel padded = model;
  pad_vocabulary(padded, divisible_by);
  const std::vector<std::pair<std::string, TensorSource>> core = core_tensors(padded);
  std::vector<trainer::ShardSource> shards;
  for (const auto& [name, source] : core) {
    shards.push_back({"model",
                      name,
                      source.dtype,
                      source.shape,
                      trainer::Piece::whole(source.shape),
                      {},
                      filler(source)});
  }
  trainer::CheckpointMeta meta;
  meta.writer = "gristmill conversion";
  meta.has_optimizer = false;
  meta.has_generator = false;
  meta.model = spec_to_texts(padded.spec);
  const auto name_file = [&](const char* flag, const std::string& file) {
    if (!file.empty()) meta.config[flag] = {file};
  };
  meta.config["make-vocab-size-divisible-by"] = {std::to_string(divisible_by)};
  name_file("tokenizer-type", model.tokenizer.type);
  name_file("vocab-file", model.tokenizer.vocab_file);
  name_file("merge-file", model.tokenizer.merge_file);
  name_file("tokenizer-model", model.tokenizer.name_or_path);
  meta.state.iteration = model.iteration;
  trainer::CheckpointRoot(path).save(std::move(meta), shards, 0);
}

void write_start(CanonicalModel model, const TokenizerFiles& tokenizer,
                 const TrainerTarget& target) {
  namespace fs = std::filesystem;
  const std::string tracker = target.path + "/latest_checkpointed_iteration.txt";
  if (fs::exists(tracker) && !target.replace)
    throw std::system_error(EEXIST, std::generic_category(),
                            tracker + ": not replaced without --force");
  const fs::path folder = fs::absolute(fs::path(target.path) / "tokenizer").lexically_normal();
  write_beside_checkpoint(tokenizer, folder.string(), target.replace);
  model.tokenizer = {};
  if (tokenizer.copied && !tokenizer.files.empty())
    model.tokenizer = {.type = "HuggingFaceTokenizer", .name_or_path = folder.string()};
  else if (!tokenizer.files.empty())
    model.tokenizer = {.name_or_path = folder.string()};
  if (!tokenizer.copied && fs::exists(folder / "vocab.json") && fs::exists(folder / "merges.txt"))
    model.tokenizer = {"GPT2BPETokenizer", (folder / "vocab.json").string(),
                       (folder / "merges.txt").string(), folder.string()};
  if (!target.dtype.empty())
    for (auto& [name, source] : model.tensors) source = convert_dtype(source, target.dtype);
  write_trainer_checkpoint(model, target.path, target.divisible_by);
}

}  // namespace convert
