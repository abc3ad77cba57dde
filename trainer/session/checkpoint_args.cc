// See checkpoint_args.h. The model record is what every writer of checkpoints leaves, also
// hf-to-megatron; the stored configuration is the trainer's own.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/checkpoint_args.h"

#include <initializer_list>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tools/cli/text.h"
#include "trainer/checkpoint/checkpoint.h"

namespace trainer {
namespace {

/// Where a field of the model record goes: its flag, and the flags that decide the same thing, any
/// of which on the command line keeps the record's value out.
struct RecordFlag {
  const char* field;
  const char* flag;
  std::initializer_list<const char*> rivals;
};
const RecordFlag kRecordFlags[] = {
    {"num_layers", "num-layers", {}},
    {"hidden_size", "hidden-size", {}},
    {"ffn_hidden_size", "ffn-hidden-size", {}},
    {"num_attention_heads", "num-attention-heads", {}},
    {"kv_channels", "kv-channels", {}},
    {"num_query_groups", "num-query-groups", {"group-query-attention"}},
    {"max_position_embeddings", "max-position-embeddings", {}},
    {"position", "position-embedding-type", {"use-rotary-position-embeddings"}},
    {"position_offset", "position-offset", {}},
    {"rotary_percent", "rotary-percent", {}},
    {"rotary_base", "rotary-base", {}},
    {"norm", "normalization", {}},
    {"norm_epsilon", "norm-epsilon", {}},
    {"activation", "activation", {"swiglu", "openai-gelu", "no-bias-gelu-fusion"}},
    {"parallel_residual", "parallel-residual", {}},
    {"linear_bias", "disable-bias-linear", {}},
    {"tied_embeddings", "untie-embeddings-and-output-weights", {}},
    {"hidden_dropout", "hidden-dropout", {}},
    {"attention_dropout", "attention-dropout", {}},
    {"init_method_std", "init-method-std", {}},
    {"vocab_size", "vocab-size", {"extra-vocab-size"}},
};

// A field's text as its flag wants it.
std::string flag_text(const std::string& field, const std::string& text) {
  if (text == "learned") return "learned_absolute";
  if (text == "rotary") return "rope";
  if (field == "linear_bias" || field == "tied_embeddings")
    return text == "true" ? "false" : "true";
  return text;
}

// The flags of TrainConfig by name, each set at most once and never over the command line.
struct Target {
  std::vector<cli::Row> rows;
  Given& given;

  void set(const std::string& flag, const cli::Values& values) {
    if (given.contains(flag)) return;
    for (const cli::Row& row : rows) {
      if (row.name != flag) continue;
      row.set(values);
      given.emplace(flag);
    }
  }
};

}  // namespace

void take_checkpoint_args(TrainConfig& config, Given& given) {
  if (!config.use_checkpoint_args) return;
  if (config.load.empty()) throw cli::UsageError("--use-checkpoint-args needs --load");
  const std::optional<std::string> path = find_checkpoint(config.load, config.ckpt_step);
  if (!path) throw std::runtime_error(cli::concat(config.load, ": no checkpoint there"));
  const Checkpoint checkpoint = Checkpoint::open(*path);
  const CheckpointMeta& meta = checkpoint.meta();
  const cli::Table<TrainConfig> table = model_flags();
  Target target{cli::bind_rows(table, config), given};
  const bool own_tokenizer = given.contains("vocab-file") || given.contains("tokenizer-model") ||
                             config.tokenizer_type == "NullTokenizer";
  for (const RecordFlag& row : kRecordFlags) {
    const auto stored = meta.model.find(row.field);
    bool decided = stored == meta.model.end();
    for (const char* rival : row.rivals) decided = decided || given.contains(rival);
    if (!decided) target.set(row.flag, {flag_text(row.field, stored->second)});
  }
  for (const char* flag : {"seq-length", "make-vocab-size-divisible-by"}) {
    const auto stored = meta.config.find(flag);
    if (stored != meta.config.end()) target.set(flag, stored->second);
  }
  for (const char* flag : {"tokenizer-type", "vocab-file", "merge-file", "tokenizer-model"}) {
    const auto stored = meta.config.find(flag);
    if (!own_tokenizer && stored != meta.config.end()) target.set(flag, stored->second);
  }
  const auto positions = meta.model.find("max_position_embeddings");
  if (positions != meta.model.end()) target.set("seq-length", {positions->second});
}

}  // namespace trainer
