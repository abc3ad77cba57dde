// SPDX-License-Identifier: MIT
// The two interleaving rules. The error of each dataset is one product and one difference of
// doubles, never fused: with a fused multiply-add the ties would fall differently (the build file
// turns contraction off for this file).
#include <algorithm>
#include <limits>

#include "libindexed/message.h"
#include "libindexed/sample_index.h"

namespace indexed {
namespace {

constexpr size_t kMostDatasets = 32767;    // int16, and the reference asserts fewer
constexpr size_t kMostDatasets2023 = 255;  // uint8

}  // namespace

BlendIndex build_blend(std::span<const double> weights, int64_t size, Compat compat) {
  const bool old = compat == Compat::fork_2023;
  if (weights.empty() || weights.size() >= (old ? kMostDatasets2023 : kMostDatasets)) {
    throw FormatError(message(weights.size(), " datasets in one blend, expected 1 to ",
                              (old ? kMostDatasets2023 : kMostDatasets) - 1));
  }
  BlendIndex blend{.dataset_index = IndexArray(old ? IndexType::u1 : IndexType::i2, size),
                   .dataset_sample_index = IndexArray(IndexType::i8, size),
                   .counts = std::vector<int64_t>(weights.size())};
  int64_t* const samples = blend.dataset_sample_index.fill<int64_t>().data();
  for (int64_t s = 0; s < size; ++s) {
    const double drawn = std::max(static_cast<double>(s), 1.0);
    size_t best = 0;
    double largest = weights[0] * drawn - static_cast<double>(blend.counts[0]);
    for (size_t i = 1; i < weights.size(); ++i) {
      const double behind = weights[i] * drawn - static_cast<double>(blend.counts[i]);
      if (behind > largest) {
        largest = behind;
        best = i;
      }
    }
    if (old) {
      blend.dataset_index.fill<uint8_t>()[static_cast<size_t>(s)] = static_cast<uint8_t>(best);
    } else {
      blend.dataset_index.fill<int16_t>()[static_cast<size_t>(s)] = static_cast<int16_t>(best);
    }
    samples[s] = blend.counts[best]++;
  }
  return blend;
}

BlendIndex build_exhaustive_blend(std::span<const int64_t> sizes) {
  if (sizes.empty() || sizes.size() >= kMostDatasets) {
    throw FormatError(
        message(sizes.size(), " datasets in one blend, expected 1 to ", kMostDatasets - 1));
  }
  int64_t total = 0;
  for (const int64_t size : sizes) total += size;
  BlendIndex blend{.dataset_index = IndexArray(IndexType::i2, total),
                   .dataset_sample_index = IndexArray(IndexType::i8, total),
                   .counts = std::vector<int64_t>(sizes.size())};
  struct Live {
    size_t dataset;
    double weight;
  };
  std::vector<Live> live;
  for (size_t i = 0; i < sizes.size(); ++i) {
    live.push_back({i, static_cast<double>(sizes[i]) / static_cast<double>(total)});
  }
  const std::span<int16_t> datasets = blend.dataset_index.fill<int16_t>();
  const std::span<int64_t> samples = blend.dataset_sample_index.fill<int64_t>();
  for (size_t s = 0; !live.empty(); ++s) {
    const double drawn = std::max(static_cast<double>(s), 1.0);
    size_t best = 0;
    double largest = std::numeric_limits<double>::lowest();
    for (size_t i = 0; i < live.size(); ++i) {
      const double behind =
          live[i].weight * drawn - static_cast<double>(blend.counts[live[i].dataset]);
      if (behind > largest) {
        largest = behind;
        best = i;
      }
    }
    const size_t dataset = live[best].dataset;
    datasets[s] = static_cast<int16_t>(dataset);
    samples[s] = blend.counts[dataset]++;
    if (blend.counts[dataset] == sizes[dataset])
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(best));
  }
  return blend;
}

}  // namespace indexed
