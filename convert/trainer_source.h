// SPDX-License-Identifier: MIT
// The trainer's own checkpoints (iter_NNNNNNN/ with meta.json), read into canonical form: joining
// shards of any layout and verifying every checksum. Also writes a canonical model as the first
// checkpoint of a run that fine-tunes it. Not here: the files (trainer/checkpoint).
// Source: docs/format/checkpoint.5.md.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "convert/canonical.h"
#include "convert/tokenizer_files.h"

namespace convert {

/// Whether `path` is a checkpoint folder of the trainer, or a root whose newest one is.
bool is_trainer_checkpoint(const std::string& path, std::optional<int64_t> iteration);

/// Reads it. `prefer_main` uses the fp32 main parameters if they are stored separately.
/// Errors: std::system_error; indexed::FormatError "path: what: why".
CanonicalModel read_trainer_checkpoint(const std::string& path, std::optional<int64_t> iteration,
                                       bool prefer_main);

/// Writes the model as a checkpoint of the root folder `path`, without optimizer state, its
/// vocabulary padded as pad_vocabulary() says; model.tokenizer's files are named in it.
/// Errors: std::system_error; std::runtime_error when another process writes there;
/// indexed::FormatError for a weight that is not finite.
void write_trainer_checkpoint(const CanonicalModel& model, const std::string& path,
                              int64_t divisible_by);

/// Where a conversion writes a checkpoint for further training.
struct TrainerTarget {
  std::string path;          ///< root folder of checkpoints
  int64_t divisible_by = 0;  ///< see pad_vocabulary()
  std::string dtype;         ///< of all weights, safetensors' spelling; empty: unchanged
  bool replace = false;      ///< replace an existing checkpoint
};

/// write_trainer_checkpoint, with the tokenizer's files beside it in path/tokenizer, where the
/// training command and an export find them. They get their names with the checkpoint, when all
/// weights are written: before, an existing checkpoint and its tokenizer are unchanged; in between
/// there is none. Errors: the same; those of refuse_bad_root(), before anything is changed.
void write_start(CanonicalModel model, const TokenizerFiles& tokenizer,
                 const TrainerTarget& target);

}  // namespace convert
