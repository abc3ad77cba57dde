// LossPlot: --plot, the loss of this process' intervals as a curve below the log. On a terminal
// that can erase lines it stays at the bottom and grows; elsewhere it is printed once, at the end.
// Not here: the drawing (tools/draw/curve.h), the terminal (tools/cli/console.h).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

#include "tools/cli/console.h"
#include "tools/draw/curve.h"

namespace trainer {

/// The curve of one run. One thread at a time.
class LossPlot {
 public:
  /// How it is drawn; `off` draws nothing.
  enum class Kind : uint8_t { off, braille, ascii };

  LossPlot(Kind kind, cli::Console& console);

  /// A new value; the picture is drawn anew. A loss that is not finite is a gap.
  void add(int64_t iteration, double loss);
  /// Before a line is written to stdout: removes the picture, which draw() brings back.
  void clear();
  void draw();
  /// The picture as lines, if it was not drawn on a terminal; called at the end.
  std::string last() const;

 private:
  std::string picture() const;

  Kind kind_;
  cli::Console& console_;
  bool live_;
  draw::Points points_;
};

}  // namespace trainer
