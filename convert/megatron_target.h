// SPDX-License-Identifier: MIT
// Writes a Megatron-LM checkpoint of one rank: model_optim_rng.pt with checkpoint_version 3.0,
// arguments, and the parameters under legacy names (which transformers' convert script reads) or
// Megatron-core's. No optimizer state: Megatron starts from it with --finetune or as a release.
// Source: docs/format/megatron-checkpoint.5.md;
// transformers/models/megatron_gpt2/convert_megatron_gpt2_checkpoint.py.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "convert/canonical.h"
#include "convert/tokenizer_files.h"

namespace convert {

/// How to write a checkpoint.
struct MegatronTarget {
  std::string path;           ///< folder, or a file that ends in .pt
  bool core_names = false;    ///< Megatron-core's names instead of legacy ones
  bool ordered_args = false;  ///< arguments as an OrderedDict with attributes
  int64_t divisible_by = 0;   ///< see pad_vocabulary()
  std::string dtype = {};     ///< F32, F16, BF16; empty: as the source has it
  bool replace = false;
  std::function<void(int64_t done, int64_t total)> progress = {};
};

/// Writes PATH/release/mp_rank_00/model_optim_rng.pt, PATH/tokenizer/ and, last,
/// PATH/latest_checkpointed_iteration.txt; or the one file. The arguments name the tokenizer folder
/// (tokenizer_type PretrainedFromHF) when there is one, else GPT2BPETokenizer. With `replace` the
/// old tracker is removed when all weights are written, before tokenizer and weights get their
/// names; a link in the place of the weights, or of a folder on the way to them, is removed then,
/// and what it leads to stays. Errors: std::system_error, also for what refuse_bad_root() finds
/// before anything is changed; indexed::FormatError from reading the source, for a weight that
/// is not finite, or for a model that Megatron-LM has no arguments for.
void write_megatron(const CanonicalModel& model, const TokenizerFiles& tokenizer,
                    const MegatronTarget& target);

/// The model's parameters under core names, q, k and v fused as version 3.0 has them, gate over up.
/// Ordered as Megatron's own state dict: embedding, layers ascending, final norm, output layer.
std::vector<std::pair<std::string, TensorSource>> core_tensors(const CanonicalModel& model);

}  // namespace convert
