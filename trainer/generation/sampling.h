// Chooses the next token, by temperature, top-k, top-p and seed, or simply the best. Input: scores;
// output: an id. Temperature, top-k and top-p are applied in Hugging Face's order.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>

namespace trainer {

/// How to choose. The defaults draw from the model's own distribution.
struct SamplingOptions {
  bool greedy = false;     ///< The best score; of equal ones the smallest id.
  double temperature = 1;  ///< Scores are divided by it; 0 is greedy.
  int64_t top_k = 0;       ///< Only the k best; 0: all.
  double top_p = 1;  ///< Only the smallest set of best tokens whose probabilities reach p; 1: all.
};

/// Refuses scores that are not finite, as of damaged weights or of sums beyond the dtype's range: a
/// choice among the others would hide them. `place` is the model's, for the message.
/// Errors: indexed::FormatError naming the first such token.
void check_scores(std::span<const float> scores, const std::string& place);

/// The next token id. Draws one number from `random`, none when greedy. Scores are finite.
int32_t choose_token(std::span<const float> scores, const SamplingOptions& options,
                     std::mt19937_64& random);

}  // namespace trainer
