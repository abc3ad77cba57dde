// SPDX-License-Identifier: MIT
// Room: tools/draw. A curve as lines of text for a terminal: braille dots, two by four a character,
// or stars. No escapes and no colour; who prints it decides where.
#pragma once

#include <string>
#include <string_view>

#include "tools/draw/scale.h"

namespace draw {

/// The size of a curve in characters, labels included, and what it is made of.
struct CurveOptions {
  int columns = 80;  ///< at least 24 are taken
  int rows = 12;     ///< at least 4
  bool ascii = false;
};

/// The curve with its numbers: `rows` + 1 lines, each ended by a newline, none longer than
/// `columns`. On the left are the highest and lowest value; below, the first and last x, and `name`
/// with the last value. Nothing but a line that says so if no value is finite.
std::string terminal_curve(std::string_view name, const Points& points,
                           const CurveOptions& options);

}  // namespace draw
