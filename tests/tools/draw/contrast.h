// SPDX-License-Identifier: MIT
// How well two colours, "#rrggbb", differ. Source: WCAG 2.1, "relative luminance" and "contrast
// ratio".
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>

namespace tests {

/// Red, green and blue, 0 to 1.
using Rgb = std::array<double, 3>;

inline Rgb rgb(std::string_view color) {
  Rgb out;
  for (size_t i = 0; i < 3; ++i)
    out[i] = std::stoi(std::string(color.substr(1 + 2 * i, 2)), nullptr, 16) / 255.0;
  return out;
}

/// `color` with an opacity of `share` on `page`.
inline Rgb mixed(const Rgb& color, const Rgb& page, double share) {
  Rgb out;
  for (size_t i = 0; i < 3; ++i) out[i] = share * color[i] + (1 - share) * page[i];
  return out;
}

inline double luminance(const Rgb& color) {
  const auto part = [](double c) {
    return c <= 0.03928 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * part(color[0]) + 0.7152 * part(color[1]) + 0.0722 * part(color[2]);
}

/// 1 (the same) to 21 (black on white).
inline double contrast(const Rgb& a, const Rgb& b) {
  const double x = luminance(a), y = luminance(b);
  return (std::max(x, y) + 0.05) / (std::min(x, y) + 0.05);
}

}  // namespace tests
