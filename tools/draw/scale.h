// SPDX-License-Identifier: MIT
// Room: tools/draw. What every picture of numbers needs: which values an axis shows, how a number
// is written beside it, and fewer points where there are more than anybody can see. No shapes and
// no text files here: chart.h, curve.h.
#pragma once

#include <cmath>
#include <string>
#include <vector>

namespace draw {

/// Whether a value can be drawn: it is finite, and no difference of such values overflows. Others
/// are gaps.
inline bool can_draw(double value) { return std::abs(value) < 1e150; }

/// A curve. x rises or stays; a point whose x or y cannot be drawn is a gap. Both have the same
/// length.
struct Points {
  std::vector<double> x, y;

  /// Whether point `i` can be drawn.
  bool has(size_t i) const { return can_draw(x[i]) && can_draw(y[i]); }
  /// Whether any can.
  bool any() const;
};

/// The ends of an axis, and the values that are written beside it, in rising order.
struct Axis {
  double low = 0, high = 1;
  std::vector<double> ticks;
  bool log = false;

  /// Where `value` lies: 0 at `low`, 1 at `high`.
  double place(double value) const;
};

/// An axis that holds [low, high]: linear with about `count` ticks of 1, 2 or 5 times a power of
/// ten; with `log` (low > 0) ticks are powers of ten, and 2 and 5 times these where there are few.
/// Equal ends are moved apart. The ends need not be ticks.
Axis axis(double low, double high, int count, bool log = false);

/// `value` in few characters: "0.0006", "2.57", "590k", "1.2M", "6e-09".
std::string short_number(double value);

/// At most about `most` of the points, such that the picture stays the same: of each run of
/// neighbours the first, the lowest, the highest and the last stay, and a gap stays a gap.
Points thin(const Points& points, size_t most);

/// The lowest and highest y of all curves; of those that can be drawn; 0 and 1 if there is none.
struct Range {
  double low, high;
};
Range range_of(const std::vector<const std::vector<double>*>& values);

}  // namespace draw
