// SPDX-License-Identifier: MIT
// megatron-to-hf --verify: both models run on a text, logits compared. The forward pass is the
// plain one of plain_forward.h, written to be read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convert/canonical.h"

namespace convert {

/// What the comparison found.
struct VerifyReport {
  int64_t tokens = 0;
  int64_t vocab_size = 0;
  double largest_difference = 0;    ///< of two logits, absolute
  double mean_difference = 0;       ///< of two logits, absolute
  double largest_logit = 0;         ///< absolute
  double bound = 0;                 ///< the largest difference that rounding explains
  int64_t equal_choices = 0;        ///< positions at which both rank the same token first
  bool equal = false;               ///< largest_difference <= bound
  std::vector<double> by_position;  ///< the largest difference at each token
  std::string text;

  /// One line for people.
  std::string summary() const;
  /// The report as JSON. Errors: std::system_error.
  void write(const std::string& path, bool replace) const;
};

/// Runs `model` and the folder on `text`, tokenized by the folder's own tokenizer files: on its
/// first 512 tokens, or max_position_embeddings if that is fewer. Errors: std::system_error;
/// indexed::FormatError for a folder that cannot be read or has no tokenizer, or a text without
/// tokens.
VerifyReport verify_folder(const CanonicalModel& model, const std::string& folder,
                           const std::string& text);

}  // namespace convert
