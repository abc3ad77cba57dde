// See rotary.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/spec/rotary.h"

#include <cmath>
#include <numbers>

namespace trainer {
namespace {

/// Llama 3's scaling: waves that fit into the original positions fewer than low_freq_factor times
/// are stretched; those that fit more than high_freq_factor times stay unchanged.
double scaled(double rate, const ModelSpec& spec) {
  const double low = spec.rotary_low_freq_factor, high = spec.rotary_high_freq_factor;
  const double waves =
      static_cast<double>(spec.rotary_original_positions) * rate / (2 * std::numbers::pi);
  if (waves > high) return rate;
  const double stretched = rate / spec.rotary_scaling_factor;
  if (waves < low) return stretched;
  const double share = (waves - low) / (high - low);
  return (1 - share) * stretched + share * rate;
}

}  // namespace

RotaryTables rotary_tables(const ModelSpec& spec, int64_t positions) {
  const int64_t half = spec.rotary_dim() / 2;
  std::vector<double> rates;
  for (int64_t i = 0; i < half; ++i) {
    const double rate = std::pow(static_cast<double>(spec.rotary_base),
                                 -static_cast<double>(i) / static_cast<double>(half)) /
                        spec.rotary_interpolation;
    rates.push_back(spec.rotary_scaling ? scaled(rate, spec) : rate);
  }
  RotaryTables tables;
  for (int64_t t = 0; t < positions; ++t) {
    for (const double rate : rates) {
      tables.cosine.push_back(static_cast<float>(std::cos(static_cast<double>(t) * rate)));
      tables.sine.push_back(static_cast<float>(std::sin(static_cast<double>(t) * rate)));
    }
  }
  return tables;
}

}  // namespace trainer
