// See sampling.h. Candidates are sorted by score, then by id, so that the choice depends only on
// the scores and one number from the generator.
//
// SPDX-License-Identifier: MIT
#include "trainer/generation/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "libindexed/format.h"
#include "libindexed/message.h"

namespace trainer {

void check_scores(std::span<const float> scores, const std::string& place) {
  for (size_t i = 0; i < scores.size(); ++i)
    if (!std::isfinite(scores[i]))
      throw indexed::FormatError(indexed::message(place, ": the score of token ", i, " is ",
                                                  scores[i], ", expected a finite number"));
}

int32_t choose_token(std::span<const float> scores, const SamplingOptions& options,
                     std::mt19937_64& random) {
  std::vector<int32_t> ids(scores.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto score = [&](int32_t id) { return scores[static_cast<size_t>(id)]; };
  const auto better = [&](int32_t a, int32_t b) {
    return score(a) != score(b) ? score(a) > score(b) : a < b;
  };
  if (options.greedy || options.temperature == 0) return *std::ranges::min_element(ids, better);
  const size_t limit =
      options.top_k > 0 ? std::min(static_cast<size_t>(options.top_k), ids.size()) : ids.size();
  std::ranges::partial_sort(ids, ids.begin() + static_cast<std::ptrdiff_t>(limit), better);
  ids.resize(limit);
  std::vector<double> shares;
  double sum = 0;
  for (const int32_t id : ids) {
    shares.push_back(std::exp((double{score(id)} - double{score(ids[0])}) / options.temperature));
    sum += shares.back();
  }
  size_t kept = 0;
  double reached = 0;
  while (kept < ids.size() && (kept == 0 || reached < options.top_p * sum))
    reached += shares[kept++];
  // 53 bits of one draw; std::uniform_real_distribution differs between libraries.
  double left = static_cast<double>(random() >> 11) * 0x1p-53 * reached;
  for (size_t i = 0; i < kept; ++i) {
    left -= shares[i];
    if (left < 0) return ids[i];
  }
  return ids[kept - 1];
}

}  // namespace trainer
