// SPDX-License-Identifier: MIT
// trainer_source.h: converts meta.json's model and tensors to a canonical model, and back.
#include "convert/trainer_source.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>

#include "convert/megatron_source.h"
#include "convert/megatron_target.h"
#include "convert/target_root.h"
#include "libindexed/format.h"
#include "libindexed/manifest.h"
#include "libindexed/mapped_file.h"
#include "libindexed/output_file.h"
#include "libindexed/read_file.h"
#include "libindexed/workers.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/spec/model_fields.h"

namespace convert {
namespace {

using indexed::FormatError;
using trainer::ModelSpec;

std::string first_of(const std::map<std::string, std::vector<std::string>>& config,
                     const char* name) {
  const auto found = config.find(name);
  return found == config.end() || found->second.empty() ? "" : found->second[0];
}

// The id that ended the documents of a run: its --eod-id, else that of the first of its datasets
// whose manifest is on this machine; -1 if neither has it.
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
        continue;  // a damaged manifest is ignored; it does not prevent the conversion
      }
    }
  }
  return -1;
}

// A shard that is some whole rows of its tensor, where its file is mapped.
TensorSource shard_source(const std::shared_ptr<trainer::Checkpoint>& file,
                          const trainer::TensorRecord& record, const trainer::ShardRecord& shard) {
  MappedRows rows{.data = file->view(record, shard, 0, 0).data()};
  rows.check = [file, &record, &shard](int64_t begin, int64_t end) {
    file->view(record, shard, begin, end);
  };
  rows.release = [file, &shard](int64_t begin, int64_t end) { file->release(shard, begin, end); };
  return mapped_source(record.dtype, shard.piece.shape, file->path() + ": " + record.name, rows);
}

// Whether the shards are whole rows of the tensor, one under the other.
bool are_rows(const trainer::TensorRecord& record) {
  int64_t next = 0;
  for (const trainer::ShardRecord& shard : record.shards) {
    const trainer::Piece& piece = shard.piece;
    if (record.shape.empty() || piece.shape.size() != record.shape.size() ||
        piece != trainer::Piece::box(piece.offsets, piece.shape) || piece.offsets[0] != next ||
        !std::equal(piece.shape.begin() + 1, piece.shape.end(), record.shape.begin() + 1))
      return false;
    next += piece.shape[0];
  }
  return !record.shape.empty() && next == record.shape[0] && next > 0;
}

TensorSource checkpoint_source(const std::shared_ptr<trainer::Checkpoint>& file,
                               const trainer::TensorRecord& record) {
  if (are_rows(record)) {
    std::vector<TensorSource> parts;
    for (const trainer::ShardRecord& shard : record.shards)
      parts.push_back(shard_source(file, record, shard));
    return join_rows(std::move(parts));
  }
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

}  // namespace

bool is_trainer_checkpoint(const std::string& path, std::optional<int64_t> iteration) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(path)) return false;
  // A folder for transformers may have a meta.json of its own.
  const bool exported = fs::exists(path + "/config.json");
  if (trainer::is_checkpoint(path) &&
      (!exported || trainer::begins_as_meta(indexed::read_file(path + "/meta.json"))))
    return true;
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
    model.spec = trainer::model_from_record(meta.model);
  } catch (const ops::ShapeError& e) {
    throw FormatError(*folder + "/meta.json: " + e.what());
  }
  try {
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
  model.tokenizer = {first_of(meta.config, "tokenizer-type"),
                     first_of(meta.config, "vocab-file"),
                     first_of(meta.config, "merge-file"),
                     first_of(meta.config, "tokenizer-model"),
                     end_of_document(meta),
                     meta.tokenizer_hash};
  model.iteration = meta.state.iteration;
  return model;
}

static void save(const CanonicalModel& model, trainer::CheckpointRoot& root, int64_t divisible_by) {
  CanonicalModel padded = model;
  divisible_by = pad_vocabulary(padded, divisible_by);
  const std::vector<std::pair<std::string, TensorSource>> core = core_tensors(padded);
  std::vector<trainer::ShardSource> shards;
  for (const auto& [name, source] : core) {
    shards.push_back({"model",
                      name,
                      source.dtype,
                      source.shape,
                      trainer::Piece::whole(source.shape),
                      {},
                      [from = &source](int64_t at, int64_t size) {
                        thread_local Scratch scratch;
                        const std::span<const std::byte> bytes = from->block(at, size, scratch);
                        refuse_not_finite(*from, at, bytes);
                        return bytes;
                      },
                      [from = &source] { from->release(); }});
  }
  trainer::CheckpointMeta meta;
  meta.writer = "gristmill conversion";
  meta.has_optimizer = false;
  meta.has_generator = false;
  meta.model = trainer::model_record(padded.spec);
  const auto name_file = [&](const char* flag, const std::string& file) {
    if (!file.empty()) meta.config[flag] = {file};
  };
  meta.config["make-vocab-size-divisible-by"] = {std::to_string(divisible_by)};
  name_file("tokenizer-type", model.tokenizer.type);
  name_file("vocab-file", model.tokenizer.vocab_file);
  name_file("merge-file", model.tokenizer.merge_file);
  name_file("tokenizer-model", model.tokenizer.name_or_path);
  meta.tokenizer_hash = model.tokenizer.hash;
  meta.state.iteration = model.iteration;
  root.save(std::move(meta), shards, 0);
}

void write_trainer_checkpoint(const CanonicalModel& model, const std::string& path,
                              int64_t divisible_by) {
  trainer::CheckpointRoot root(path, {.threads = indexed::copying_threads()});
  save(model, root, divisible_by);
}

void write_start(CanonicalModel model, const TokenizerFiles& tokenizer,
                 const TrainerTarget& target) {
  namespace fs = std::filesystem;
  if (!target.dtype.empty()) {
    for (auto& [name, source] : model.tensors) source = convert_dtype(source, target.dtype);
  }
  for (const auto& [name, source] : model.tensors)
    if (source.dtype == "F64")
      throw FormatError(source.place +
                        ": dtype F64: the trainer reads 32 and 16 bits: --dtype fp32");
  const fs::path own = trainer::iteration_folder(target.path, model.iteration);
  indexed::check_mapped_files();  // before there is a file in the root
  const std::unique_ptr<FolderLock> lock =
      open_root({target.path, own.filename().string(), target.replace}, tokenizer);
  const fs::path root_path(target.path), folder = trainer::plain_path(target.path) / "tokenizer";
  // Ends last: a signal that waits for it finds what has no name removed.
  std::optional<indexed::NamingSection> naming;
  std::optional<TokenizerBeside> beside;
  SetAside old(target.path, kTracker);
  // From here to the new tracker there is no checkpoint in the root.
  const auto before_naming = [&](const std::string& unfinished) {
    naming.emplace();
    old.take(root_path / "latest_checkpointed_iteration.txt");
    // One that is not the trainer's is set aside by save(), and stays.
    if (trainer::is_certainly_checkpoint(own)) old.take(own);
    beside->take_names(old);
    old.expect(own, unfinished);
    old.end_names();
  };
  trainer::CheckpointRoot root(
      target.path, {.threads = indexed::copying_threads(), .before_naming = before_naming});
  beside.emplace(tokenizer, (root_path / "tokenizer").string(), target.replace);
  const auto there = [&](const char* name) {
    return std::any_of(tokenizer.files.begin(), tokenizer.files.end(),
                       [&](const TokenizerFile& file) { return file.name == name; });
  };
  // The files beside the checkpoint say which tokenizer it has; without any, only the hash does.
  model.tokenizer = {.hash = tokenizer.files.empty() ? model.tokenizer.hash : ""};
  if (tokenizer.copied && !tokenizer.files.empty())
    model.tokenizer = {.type = "HuggingFaceTokenizer", .name_or_path = folder.string()};
  else if (!tokenizer.files.empty())
    model.tokenizer = {.name_or_path = folder.string()};
  if (!tokenizer.copied && there("vocab.json") && there("merges.txt"))
    model.tokenizer = {"GPT2BPETokenizer", (folder / "vocab.json").string(),
                       (folder / "merges.txt").string(), folder.string()};
  save(model, root, target.divisible_by);
  old.keep();
}

}  // namespace convert
