// SPDX-License-Identifier: MIT
// Room: tools/draw. What several workers do over time, as an SVG file of its own: a row a worker, a
// box an action.
#pragma once

#include <string>
#include <vector>

namespace draw {

/// One action of a worker.
struct Bar {
  int row = 0;
  double begin = 0, end = 0;
  std::string text;  ///< left out where the box is too narrow for it
  int color = 0;     ///< a place in kColors (chart.h)
  bool faint = false;
};

/// A picture of rows of bars.
struct BarPicture {
  std::string title;
  std::string words;                      ///< what it shows, for people who do not see it
  std::vector<std::string> rows, legend;  ///< names; legend[i] is what colour i means
  std::vector<Bar> bars;
};

/// The picture as the text of an .svg file, light and dark.
std::string bar_picture(const BarPicture& picture);

}  // namespace draw
