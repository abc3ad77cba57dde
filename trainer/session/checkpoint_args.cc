// See checkpoint_args.h. Every writer of checkpoints, also hf-to-megatron, stores the model record;
// only the trainer stores its configuration.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/checkpoint_args.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tools/cli/text.h"
#include "tools/tokenizer/open_tokenizer.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/named_tokenizer.h"
#include "trainer/session/start.h"
#include "trainer/spec/model_fields.h"

namespace trainer {
namespace {

/// Whether a given flag sets the field, too.
bool decided(const ModelField& field, const Given& given) {
  return std::ranges::any_of(cli::split_names(field.rivals), [&](std::string_view rival) {
    return given.contains(std::string(rival));
  });
}

// The flags of TrainConfig by name, each set at most once and never over the command line.
struct Target {
  std::vector<cli::Row> rows;
  Given& given;

  void set(const std::string& flag, const cli::Values& values) {
    if (given.contains(flag)) return;
    for (const cli::Row& row : rows) {
      if (row.name != flag) continue;
      if (row.arity != cli::Arity::many && values.size() != 1) {
        throw std::runtime_error(cli::concat("the checkpoint's meta.json: ", flag, " has ",
                                             values.size(), " values, expected one"));
      }
      row.set(values);
      given.emplace(flag);
    }
  }
};

// Sets the tokenizer that the checkpoint `path` names, if its files are there: training reads ids,
// and the checkpoint says how many there are. Returns a message for the user, or nothing.
std::string take_tokenizer(const std::string& path, const CheckpointMeta& meta, Target& target) {
  const auto stored = [&](const char* flag) {
    const auto found = meta.config.find(flag);
    return found == meta.config.end() || found->second.empty() ? "" : found->second[0];
  };
  tokenizer::Flags own = tokenizer::counting({.type = stored("tokenizer-type"),
                                              .patch_type = stored("patch-tokenizer-type"),
                                              .model = stored("tokenizer-model"),
                                              .vocab_file = stored("vocab-file"),
                                              .merge_file = stored("merge-file")});
  std::string note =
      take_own_tokenizer(tokenizer_folder(path), {&own.vocab_file, &own.merge_file, &own.model});
  for (const std::string& file : {own.vocab_file, own.merge_file, own.model}) {
    std::error_code unknown;
    if (file.empty() || std::filesystem::exists(file, unknown) || unknown) continue;
    const auto size = meta.model.find("vocab_size");
    return cli::concat(path, ": its tokenizer, ", file,
                       ", is not there: training reads ids, and the checkpoint has ",
                       size == meta.model.end() ? "" : size->second, " of them");
  }
  for (const auto& [flag, value] : {std::pair("tokenizer-type", own.type),
                                    {"vocab-file", own.vocab_file},
                                    {"merge-file", own.merge_file},
                                    {"tokenizer-model", own.model}})
    if (!value.empty()) target.set(flag, {value});
  for (const char* flag : {"tokenizer-special-tokens", "tiktoken-pattern",
                           "tiktoken-num-special-tokens", "tiktoken-special-tokens"}) {
    const auto found = meta.config.find(flag);
    if (found != meta.config.end() && !found->second.empty()) target.set(flag, found->second);
  }
  return note;
}

}  // namespace

std::string take_checkpoint_args(TrainConfig& config, Given& given) {
  if (!config.use_checkpoint_args) return {};
  if (config.load.empty()) throw cli::UsageError("--use-checkpoint-args needs --load");
  if (!config.vocab_size) given.erase("vocab-size");  // -1: not given.
  const std::optional<std::string> path = find_checkpoint(config.load, config.ckpt_step);
  if (!path) throw std::runtime_error(cli::concat(config.load, ": no checkpoint there"));
  const Checkpoint checkpoint = open_checkpoint(*path, config);
  const CheckpointMeta& meta = checkpoint.meta();
  const cli::Table<TrainConfig> table = model_flags();
  Target target{cli::bind_rows(table, config), given};
  const bool own_tokenizer = given.contains("vocab-file") || given.contains("tokenizer-model") ||
                             (config.tokenizer_type == "NullTokenizer" &&
                              config.patch_tokenizer_type.empty());  // Pai's default
  const ModelSpec model = model_from_record(meta.model);
  if (!given.contains("num-query-groups") && model.num_query_groups != model.num_attention_heads)
    config.group_query_attention = true;  // its heads share; the command says nothing of it.
  for (const ModelField& field : model_fields()) {
    // The family is not set here: it is the checkpoint's if that can still represent the model.
    if (field.argument.empty() || field.name == "family" || decided(field, given)) continue;
    if (meta.model.contains(std::string(field.name)))
      target.set(field.flag(), {field_text(field, model, true)});
  }
  for (const char* flag : {"seq-length", "make-vocab-size-divisible-by"}) {
    const auto stored = meta.config.find(flag);
    if (stored != meta.config.end()) target.set(flag, stored->second);
  }
  const auto positions = meta.model.find("max_position_embeddings");
  if (positions != meta.model.end()) target.set("seq-length", {positions->second});
  return own_tokenizer ? std::string() : take_tokenizer(*path, meta, target);
}

}  // namespace trainer
