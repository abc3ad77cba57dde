// What the manifests beside a run's datasets say against the run: documents that end otherwise than
// the run believes, tokens of another tokenizer. Here: the comparison, and its words. Not here: a
// manifest's form (libindexed/manifest.h), the run's tokenizer (vocabulary.h). May include: data/,
// config/, libindexed.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "trainer/config/train_config.h"
#include "trainer/session/vocabulary.h"

namespace trainer {

/// A message for the user for each way in which datasets do not fit the run; those with the same
/// message share one. Nothing about datasets without a manifest, or with one of another dataset.
/// Errors: none; what is wrong with the data itself is open_training_data()'s to report.
std::vector<std::string> manifest_notes(const TrainConfig& config, const Vocabulary& own);

}  // namespace trainer
