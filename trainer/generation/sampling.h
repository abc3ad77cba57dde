// Which token comes next: temperature, top-k, top-p, seed, or simply the best. Scores in, id out;
// the order of the three is Hugging Face's.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <random>
#include <span>

namespace trainer {

/// How to choose. The defaults draw from the model's own distribution.
struct SamplingOptions {
  bool greedy = false;     ///< the best score; the smaller id of equal ones.
  double temperature = 1;  ///< scores are divided by it; 0 is greedy.
  int64_t top_k = 0;       ///< only the k best; 0: all.
  double top_p = 1;        ///< only the fewest best whose probabilities reach p; 1: all.
};

/// The next token id. One draw from `random`, none when greedy.
/// Errors: none; a score that is NaN is never chosen.
int32_t choose_token(std::span<const float> scores, const SamplingOptions& options,
                     std::mt19937_64& random);

}  // namespace trainer
