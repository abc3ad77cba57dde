// SPDX-License-Identifier: MIT
// Folders as transformers' from_pretrained reads them: config.json, generation_config.json,
// model.safetensors in one file or in shards with their index, tokenizer files. All get their names
// together, config.json last, so a folder that has one is complete. Not here: names and configs of
// each family (families/), tokenizers (tokenizer_files.h).
// Source: docs/format/hf-folder.5.md.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "convert/canonical.h"
#include "convert/families/family.h"
#include "convert/tokenizer_files.h"

namespace convert {

/// How to write a folder.
struct HfTarget {
  std::string folder;
  int64_t max_shard_bytes = 5'000'000'000;  ///< of tensors; one larger tensor is a shard of its own
  std::string dtype = {};                   ///< F32, F16, BF16; empty: as the source has it
  bool replace = false;                     ///< an existing config.json and its weights
  /// Called after each tensor with the bytes written so far and in all.
  std::function<void(int64_t done, int64_t total)> progress = {};
};

/// What was written, and messages for the user.
struct HfResult {
  int64_t tensors = 0;
  int64_t bytes = 0;  ///< of tensors
  int64_t shards = 0;
  std::vector<std::string> notes;
};

/// The folder, inside a model's, in which its files wait for their names.
inline constexpr const char* kUnnamedFiles = ".megatron-to-hf.tmp";

/// Writes the model as a folder of `family`, one tensor at a time and in pieces of 16 MiB; only a
/// matrix that must be transposed is in memory completely, twice.
/// Errors: std::system_error (EEXIST for a folder that has a config.json, unless `replace`);
/// indexed::FormatError from reading the source. After an error the folder is as it was.
HfResult write_hf_folder(const CanonicalModel& model, const Family& family,
                         const TokenizerFiles& tokenizer, const HfTarget& target);

/// Whether from_pretrained reads a file of this name besides config.json: weights, their index,
/// tokenizer files. Other names, such as model_ema.safetensors or tokenizer.notes, belong to the
/// user.
bool is_model_file(const std::string& name);

/// Reads a folder of any family. Its vocabulary has no padding: vocab_size is that of config.json.
/// Errors: std::system_error; indexed::FormatError "path: what: why".
CanonicalModel read_hf_folder(const std::string& folder);

}  // namespace convert
