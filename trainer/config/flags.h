// The trainer's flag table: Megatron's names, grouped as `trainer --help` prints them, and the
// steps from rows to a checked TrainConfig. The rows are in flags_model.cc, flags_learning.cc,
// flags_fp8.cc, flags_run.cc and flags_compatibility.cc (flags of the tutorials that change nothing
// here, or are refused by name). May include tools/cli and nlohmann-json (for --deepspeed_config);
// no device, no dataset.
// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/flags.h"
#include "trainer/config/train_config.h"

namespace trainer {

/// Every row, in the order of the help.
const cli::Table<TrainConfig>& flag_table();

/// The parts of the table.
cli::Table<TrainConfig> model_flags();
cli::Table<TrainConfig> learning_flags();
cli::Table<TrainConfig> fp8_flags();
cli::Table<TrainConfig> run_flags();
cli::Table<TrainConfig> compatibility_flags();

/// Long names of the flags that a command line or a file set.
using Given = std::set<std::string, std::less<>>;

/// A file's name and text.
struct NamedText {
  std::string path, text;
};

/// Applies GPT-NeoX's configurations, all files together, except for what the command line
/// (`given`) sets. Returns the keys that change nothing here, to be named once; `remarks` gets what
/// is computed in another way here.
/// State: names set here are added to `given`.
/// Errors: cli::UsageError naming the file and key for invalid YAML, a key that occurs twice, a
/// value that a flag does not accept, or a setting that cannot be honoured.
std::vector<std::string> apply_neox(TrainConfig& config, Given& given,
                                    const std::vector<NamedText>& files,
                                    std::vector<std::string>& remarks);

/// Takes over what such configurations say of the model, and of its tokenizer's files, alone: those
/// that a checkpoint was written with, however it was trained.
/// Returns remarks: what is computed in another way here. Errors: as apply_neox(), for keys of the
/// model.
std::vector<std::string> apply_neox_model(TrainConfig& config, const std::vector<NamedText>& files);

/// Takes over what a DeepSpeed configuration says: batch sizes, precision, clipping, ZeRO stage and
/// offload. Returns the keys that change nothing here, to be named once. The sections optimizer and
/// scheduler are among them: pretrain_gpt.py ignores them too.
/// State: names set here are added to `given`.
/// Errors: cli::UsageError naming `path` and key for a value that a flag gives differently, a
/// setting that cannot be honoured, or text that is not JSON.
std::vector<std::string> apply_deepspeed(TrainConfig& config, Given& given,
                                         std::string_view json_text, const std::string& path);

/// Fills config.derived for `world_size` processes and checks that everything can be honoured as
/// requested: otherwise it is refused, never silently reduced. Returns notes to be printed once.
/// Errors: cli::UsageError naming flag, value and what would be permitted.
std::vector<std::string> derive_and_check(TrainConfig& config, const Given& given,
                                          int64_t world_size);

/// The part of the command line from which a number of samples of the schedule follows, if that is
/// not `flag` itself: "--train-iters 120" for lr-decay-samples; "": it is. `flag`:
/// lr-decay-samples, lr-warmup-samples, lr-wsd-decay-samples or weight-decay-samples.
std::string schedule_source(const TrainConfig& config, std::string_view flag);

/// The flags without which a run cannot begin and that `config` lacks, as messages name them:
/// "--lr", "--train-iters (or --train-samples, or --train-tokens)".
std::vector<std::string> missing_flags(const TrainConfig& config);

/// Every flag that has a value, by name: the "config" part of a checkpoint.
std::map<std::string, std::vector<std::string>> flag_values(const TrainConfig& config);

/// The effective configuration, as a file that --config accepts.
std::string effective_config(const TrainConfig& config);

/// V rounded up so that every tensor-parallel rank holds a multiple of
/// --make-vocab-size-divisible-by rows, or --padded-vocab-size, or V itself where
/// --patch-tokenizer-type does not pad. Errors: cli::UsageError for a --padded-vocab-size that is
/// smaller than V, and for rows that are not divisible by the ranks.
int64_t pad_vocab_size(const TrainConfig& config, int64_t vocab_size);

}  // namespace trainer
