// See loss_plot.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/loss_plot.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace trainer {
namespace {

constexpr int kColumns = 80, kRows = 12, kLeastRows = 4;
constexpr size_t kMostPoints = 4000;  // more than any terminal shows

// The picture's place on stderr's terminal: a third of its rows, so that the log stays in sight.
draw::CurveOptions size_of_terminal() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return {.columns = kColumns, .rows = kRows};
  return {.columns = size.ws_col, .rows = std::min(kRows, size.ws_row / 3)};
}

}  // namespace

LossPlot::LossPlot(Kind kind, cli::Console& console)
    : kind_(kind),
      console_(console),
      live_(kind != Kind::off && !console.quiet() && cli::erases_lines(STDERR_FILENO)) {}

void LossPlot::add(int64_t iteration, double loss) {
  if (kind_ == Kind::off) return;
  points_.x.push_back(static_cast<double>(iteration));
  points_.y.push_back(loss);
  if (points_.x.size() > kMostPoints) points_ = draw::thin(points_, kMostPoints / 2);
  draw();
}

void LossPlot::clear() {
  if (live_) console_.clear_below();
}

void LossPlot::draw() {
  if (!live_ || points_.x.empty()) return;
  const bool room = size_of_terminal().rows >= kLeastRows && size_of_terminal().columns >= 24;
  console_.draw_below(room ? picture() : "");
}

std::string LossPlot::last() const {
  return live_ || kind_ == Kind::off || points_.x.empty() ? "" : picture();
}

std::string LossPlot::picture() const {
  draw::CurveOptions options = size_of_terminal();
  options.ascii = kind_ == Kind::ascii;
  // A line as wide as the terminal would wrap on some: then one more than was counted is there.
  if (live_) options.columns -= 1;
  return draw::terminal_curve("lm loss", points_, options);
}

}  // namespace trainer
