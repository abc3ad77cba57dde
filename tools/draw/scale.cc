// SPDX-License-Identifier: MIT
// Room: tools/draw. Axes and numbers; see scale.h.
#include "tools/draw/scale.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

namespace draw {
namespace {

Axis linear(double low, double high, int count) {
  Axis out{low, high, {}, false};
  const double rough = (high - low) / std::max(count, 1);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double times : {1.0, 2.0, 5.0})
    if (times * power >= rough * 0.999) {
      step = times * power;
      break;
    }
  for (double k = std::ceil(low / step - 1e-9); k * step <= high + step * 1e-9; ++k)
    out.ticks.push_back(k == 0 ? 0 : k * step);
  return out;
}

Axis logarithmic(double low, double high) {
  Axis out{low, high, {}, true};
  const double decades = std::log10(high) - std::log10(low);  // high / low may overflow
  const auto first = static_cast<int>(std::floor(std::log10(low)));
  const auto last = static_cast<int>(std::ceil(std::log10(high)));
  const int every = std::max(1, static_cast<int>(decades / 6));
  for (int power = first; power <= last; ++power) {
    for (const double times : {1.0, 2.0, 5.0}) {
      if (times != 1 && decades > 2) continue;
      if (times == 1 && power % every != 0) continue;
      const double tick = times * std::pow(10.0, power);
      if (tick >= low * 0.9999 && tick <= high * 1.0001) out.ticks.push_back(tick);
    }
  }
  return out;
}

}  // namespace

bool Points::any() const {
  for (size_t i = 0; i < x.size(); ++i)
    if (has(i)) return true;
  return false;
}

double Axis::place(double value) const {
  if (log) return (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
  return (value - low) / (high - low);
}

Axis axis(double low, double high, int count, bool log) {
  if (log) {
    if (high <= low) low /= 2, high *= 2;
    return logarithmic(low, high);
  }
  // Ends so near that doubles between them are few make no ticks, nor do differences that are near
  // the smallest double.
  constexpr double kNearest = 1e-300;
  const double apart = std::max(1e-9 * std::max(std::abs(low), std::abs(high)), kNearest);
  if (high - low <= apart) {
    const double more = low == 0 ? 1 : std::max(0.05 * std::abs(low), 5 * kNearest);
    low -= more, high += more;
  }
  return linear(low, high, count);
}

std::string short_number(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  char text[40];
  const double size = std::abs(value);
  constexpr std::array<std::pair<double, const char*>, 4> kUnits = {
      {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"}}};
  if (size < 1e15)
    for (const auto& [unit, letter] : kUnits)
      if (size >= unit) {
        std::snprintf(text, sizeof text, "%.4g%s", value / (unit == 1e4 ? 1e3 : unit), letter);
        return text;
      }
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

Points thin(const Points& points, size_t most) {
  const size_t n = points.x.size(), runs = std::max<size_t>(most / 4, 1);
  if (n <= most) return points;
  Points out;
  for (size_t run = 0; run < runs; ++run) {
    const size_t begin = n * run / runs, end = n * (run + 1) / runs;
    if (begin == end) continue;
    std::vector<size_t> keep = {begin, end - 1};
    size_t lowest = n, highest = n;
    for (size_t i = begin; i < end; ++i) {
      if (!points.has(i)) {
        if (i == begin || points.has(i - 1)) keep.push_back(i);
        continue;
      }
      if (lowest == n || points.y[i] < points.y[lowest]) lowest = i;
      if (highest == n || points.y[i] > points.y[highest]) highest = i;
    }
    if (lowest != n) keep.insert(keep.end(), {lowest, highest});
    std::sort(keep.begin(), keep.end());
    keep.erase(std::unique(keep.begin(), keep.end()), keep.end());
    for (const size_t i : keep) out.x.push_back(points.x[i]), out.y.push_back(points.y[i]);
  }
  return out;
}

Range range_of(const std::vector<const std::vector<double>*>& values) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const std::vector<double>* list : values)
    for (const double value : *list)
      if (can_draw(value)) low = std::min(low, value), high = std::max(high, value);
  if (low > high) return {0, 1};
  return {low, high};
}

}  // namespace draw
