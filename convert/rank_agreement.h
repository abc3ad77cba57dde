// SPDX-License-Identifier: MIT
// What the ranks' files of one checkpoint have in common: they must be of one run, step and model,
// and should have the same bytes of what several ranks hold whole. Files of two runs or steps fit
// together by their names and shapes, and their mixture is no model. The arguments must be of that
// model, too, where a tensor tells. Not here: how many ranks there
// must be, and what each holds (megatron_source.h, megatron_names.h).
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "convert/tensor_source.h"
#include "convert/torch_file.h"
#include "trainer/spec/spec.h"

namespace convert {

/// Compares the iteration, checkpoint_version and arguments that shape the model.
/// Errors: indexed::FormatError naming both files, and what differs.
void refuse_other_run(const TorchFile& first, const TorchFile& other, bool core_layout);

/// Parameters by core name; a share of each tensor-parallel rank.
using RankShares = std::map<std::string, std::vector<TensorSource>>;

/// Two tensors that should be the same.
using Twins = std::pair<TensorSource, TensorSource>;

/// Names the first copy that is not the same, and what it is a copy of: among what each
/// tensor-parallel rank holds whole, and among `twins`. Empty if there is none.
/// Errors: those of the sources.
std::string differing_copy(const RankShares& shares, const std::vector<Twins>& twins);

/// Refuses an output layer that is not the embedding where the model has one for both, in a
/// checkpoint of a kind in which such a model has none: it is another model. `why` says where the
/// arguments come from. Errors: indexed::FormatError; those of the sources.
void refuse_other_head(const RankShares& shares, const trainer::ModelSpec& spec,
                       const std::string& why);

}  // namespace convert
