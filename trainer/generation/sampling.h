// Chooses the next token, by temperature, top-k, top-p and seed, or simply the best. Input: scores;
// output: an id. Temperature, top-k and top-p are applied in Hugging Face's order.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <random>
#include <span>

namespace trainer {

/// How to choose. The defaults draw from the model's own distribution.
struct SamplingOptions {
  bool greedy = false;     ///< The best score; of equal ones the smallest id.
  double temperature = 1;  ///< Scores are divided by it; 0 is greedy.
  int64_t top_k = 0;       ///< Only the k best; 0: all.
  double top_p = 1;  ///< Only the smallest set of best tokens whose probabilities reach p; 1: all.
};

/// The next token id. Draws one number from `random`, none when greedy.
/// Errors: none; a score that is NaN is never chosen.
int32_t choose_token(std::span<const float> scores, const SamplingOptions& options,
                     std::mt19937_64& random);

}  // namespace trainer
