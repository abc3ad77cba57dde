// SPDX-License-Identifier: MIT
// Room: tools/draw. Curves in a terminal; see curve.h.
#include "tools/draw/curve.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tools/cli/text.h"

namespace draw {
namespace {

// Dots of a rectangle; row 0 is at the top.
class Dots {
 public:
  Dots(int width, int height)
      : width_(width), height_(height), set_(static_cast<size_t>(width * height)) {}

  // A line between two dots, every column of it and all rows between neighbours.
  void line(double x0, double y0, double x1, double y1) {
    const int steps =
        std::max(1, static_cast<int>(std::ceil(std::max(std::abs(x1 - x0), std::abs(y1 - y0)))));
    for (int k = 0; k <= steps; ++k) {
      const double t = static_cast<double>(k) / steps;
      mark(static_cast<int>(std::lround(x0 + t * (x1 - x0))),
           static_cast<int>(std::lround(y0 + t * (y1 - y0))));
    }
  }
  bool at(int x, int y) const { return set_[static_cast<size_t>(y * width_ + x)]; }

 private:
  void mark(int x, int y) {
    if (x >= 0 && x < width_ && y >= 0 && y < height_)
      set_[static_cast<size_t>(y * width_ + x)] = true;
  }
  int width_, height_;
  std::vector<bool> set_;
};

// The character of a cell of two by four dots. Source: Unicode, Braille Patterns: bits 0 to 2 and 6
// are the left column from the top, 3 to 5 and 7 the right one.
std::string braille(const Dots& dots, int column, int row) {
  constexpr int kBits[4][2] = {{0, 3}, {1, 4}, {2, 5}, {6, 7}};
  unsigned bits = 0;
  for (int y = 0; y < 4; ++y)
    for (int x = 0; x < 2; ++x)
      if (dots.at(2 * column + x, 4 * row + y)) bits |= 1u << kBits[y][x];
  if (bits == 0) return " ";
  return {'\xe2', static_cast<char>(0xa0 | bits >> 6), static_cast<char>(0x80 | (bits & 63))};
}

std::string left(std::string text, size_t width) {
  if (text.size() < width) text.insert(0, width - text.size(), ' ');
  return text;
}

}  // namespace

std::string terminal_curve(std::string_view name, const Points& points,
                           const CurveOptions& options) {
  if (!points.any()) return cli::concat(name, ": no values yet\n");
  const Range y = range_of({&points.y}), x = range_of({&points.x});
  const std::string high = short_number(y.high), low = short_number(y.low);
  const size_t label = std::max(high.size(), low.size());
  const int rows = std::max(options.rows, 4);
  const int columns = std::max(options.columns, 24) - static_cast<int>(label) - 1;
  const int across = options.ascii ? 1 : 2, down = options.ascii ? 1 : 4;
  Dots dots(columns * across, rows * down);
  const auto place_x = [&](double v) {
    return x.high == x.low ? 0 : (v - x.low) / (x.high - x.low) * (columns * across - 1);
  };
  const auto place_y = [&](double v) {
    return y.high == y.low ? (rows * down - 1) / 2.0
                           : (y.high - v) / (y.high - y.low) * (rows * down - 1);
  };
  double last = y.low;
  for (size_t i = 0; i < points.y.size(); ++i) {
    if (!points.has(i)) continue;
    last = points.y[i];
    const size_t from = i > 0 && points.has(i - 1) ? i - 1 : i;
    dots.line(place_x(points.x[from]), place_y(points.y[from]), place_x(points.x[i]),
              place_y(points.y[i]));
  }
  std::string out;
  for (int row = 0; row < rows; ++row) {
    std::string text;
    for (int column = 0; column < columns; ++column)
      text += options.ascii ? (dots.at(column, row) ? "*" : " ") : braille(dots, column, row);
    text.erase(text.find_last_not_of(' ') + 1);
    out += left(row == 0                             ? high
                : row == rows - 1 && y.high != y.low ? low
                                                     : "",
                label) +
           " " + text;
    out.erase(out.find_last_not_of(' ') + 1);
    out += "\n";
  }
  const std::string first = short_number(x.low), end = short_number(x.high);
  std::string middle = cli::concat(name, " ", short_number(last));
  const size_t room = static_cast<size_t>(columns) -
                      std::min(first.size() + end.size() + 2, static_cast<size_t>(columns));
  if (middle.size() > room) middle = short_number(last).substr(0, room);
  const size_t blanks = room - middle.size();
  return out + std::string(label + 1, ' ') + first + std::string(blanks / 2 + 1, ' ') + middle +
         std::string(blanks - blanks / 2 + 1, ' ') + end + "\n";
}

}  // namespace draw
