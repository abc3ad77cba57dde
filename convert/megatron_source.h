// SPDX-License-Identifier: MIT
// Megatron's own checkpoints, read: model_optim_rng.pt of any checkpoint_version, legacy,
// Transformer Engine and core names, tensor and pipeline ranks joined; Megatron-DeepSpeed's
// mp_rank and layer files; GPT-NeoX's through neox_source.h. Parameters only: of the optimizer's
// state nothing is read but DeepSpeed's fp32 weights (zero_source.h, main_parameters.h). The
// trainer's own checkpoints are trainer_source.h's.
// Source: docs/format/megatron-checkpoint.5.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "convert/canonical.h"
#include "convert/torch_file.h"

namespace convert {

/// What the command line adds to a source or overrides.
struct SourceOptions {
  std::optional<int64_t> iteration = {};            ///< of a root folder; else the tracker's
  std::optional<int64_t> num_attention_heads = {};  ///< for files without arguments
  std::string activation = {};  ///< gelu, gelu_new, relu: overrides the arguments
  TorchFile::Checksums checksums = TorchFile::Checksums::require;
  /// GPT-NeoX's configurations, where they are not those beside its checkpoint.
  std::vector<std::string> neox_configs = {};
  bool strict_pickle = false;  ///< refuse classes that are not understood even in the arguments
  /// Take the fp32 weights of DeepSpeed's optimizers behind 16-bit ones; a note says where not.
  bool prefer_main = false;
};

/// Opens a file of torch.save as the options say. Errors: as of TorchFile; with strict_pickle
/// indexed::FormatError for a class that is not understood.
std::shared_ptr<TorchFile> open_torch_file(const std::string& path, const SourceOptions& options);

/// Whether a folder is one checkpoint of a kind that read_megatron() reads, by the names in it.
/// Errors: std::system_error.
bool is_megatron_checkpoint(const std::string& folder);

/// Whether a folder of checkpoints has a tracker, Megatron's or DeepSpeed's. That of transformers'
/// own Trainer with DeepSpeed beside a model for transformers is none. Errors: std::system_error.
bool is_megatron_root(const std::string& folder);

/// The folder of rank folders for `path`: itself, or in a root folder iter_N or global_stepN of the
/// given iteration, else of the tracker: DeepSpeed's latest, or latest_checkpointed_iteration.txt.
/// Errors: indexed::FormatError for a tracker without its folder.
std::string resolve_checkpoint(const std::string& path, std::optional<int64_t> iteration);

/// Reads the checkpoint at `path`: a file, a folder of ranks, or a root with a tracker.
/// The vocabulary is as stored; spec.vocab_size is 0 if the arguments do not say how many of its
/// rows are real.
/// Errors: std::system_error; indexed::FormatError "path: what: why" for a file that is damaged or
/// hostile, a rank that is missing, a model that this program does not know.
CanonicalModel read_megatron(const std::string& path, const SourceOptions& options);

/// Converts parameters under core names (qkv in `order`, gate before up) to canonical form;
/// shares[i] is tensor-parallel rank i's. Sizes of the spec that are 0 are filled from the tensors.
/// Errors: indexed::FormatError when shares do not fit together.
void add_core_tensors(CanonicalModel& model,
                      const std::map<std::string, std::vector<TensorSource>>& shares,
                      QkvOrder order);

/// The model's numbers from Megatron's arguments; sizes that they lack stay 0. `args` may be
/// nothing.
/// Errors: indexed::FormatError naming an argument that asks for a model that is not supported.
trainer::ModelSpec spec_from_arguments(Value args, bool core_layout);

/// Tokenizer and vocabulary paths of the arguments.
TokenizerHints hints_from_arguments(Value args);

}  // namespace convert
