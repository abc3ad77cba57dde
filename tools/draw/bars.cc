// SPDX-License-Identifier: MIT
// Room: tools/draw. Boxes over time; see bars.h.
#include "tools/draw/bars.h"

#include <algorithm>

#include "tools/cli/text.h"
#include "tools/draw/chart.h"

namespace draw {
namespace {

using cli::concat;

constexpr double kRow = 22, kLeft = 70, kTop = 44, kBottom = 10, kLetter = 7.5;

std::string key(const std::string& name, size_t color, double x) {
  return concat("<rect class=\"c", color, "\" x=\"", x, "\" y=\"26\" width=\"12\" height=\"12\"/>",
                "<text x=\"", x + 17, "\" y=\"36\">", escape_html(name), "</text>");
}

}  // namespace

std::string bar_picture(const BarPicture& picture) {
  double last = 1, shortest = 1;
  for (const Bar& bar : picture.bars) {
    if (!can_draw(bar.begin) || !can_draw(bar.end)) continue;
    last = std::max(last, bar.end);
    shortest = std::min(shortest, bar.end - bar.begin);
  }
  // The narrowest box has room for two digits, unless the picture would get wider than is any use.
  const double unit = std::clamp(20 / shortest, 600 / last, std::max(600.0, 8000.0) / last);
  const double width = kLeft + last * unit + 10;
  const double height = kTop + kRow * static_cast<double>(picture.rows.size()) + kBottom;
  std::string out = concat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", width, " ", height, "\" width=\"",
      width, "\" height=\"", height, "\" role=\"img\" aria-label=\"", escape_html(picture.title),
      ": ", escape_html(picture.words), "\">\n<style>", chart_style(),
      "svg{background:var(--page);font:12px sans-serif}text{fill:var(--text)}"
      "rect{fill:var(--color);stroke:var(--page)}"
      "rect.faint{fill-opacity:.25;stroke:var(--color)}text.in{fill:var(--page);"
      "text-anchor:middle;pointer-events:none}text.in.faint{fill:var(--text)}</style>\n"
      "<text x=\"10\" y=\"16\" font-weight=\"bold\">",
      escape_html(picture.title), "</text>\n");
  double x = 10;
  for (size_t i = 0; i < picture.legend.size(); ++i) {
    out += key(picture.legend[i], i, x);
    x += 35 + kLetter * static_cast<double>(picture.legend[i].size());
  }
  for (size_t i = 0; i < picture.rows.size(); ++i)
    out += concat("\n<text x=\"10\" y=\"", kTop + kRow * static_cast<double>(i) + 15, "\">",
                  escape_html(picture.rows[i]), "</text>");
  for (const Bar& bar : picture.bars) {
    if (!can_draw(bar.begin) || !can_draw(bar.end)) continue;
    const double left = kLeft + bar.begin * unit, wide = (bar.end - bar.begin) * unit;
    const double top = kTop + kRow * bar.row;
    out += concat("\n<rect class=\"c", bar.color, bar.faint ? " faint" : "", "\" x=\"", left,
                  "\" y=\"", top, "\" width=\"", wide, "\" height=\"", kRow - 2, "\"><title>",
                  escape_html(bar.text), "</title></rect>");
    if (kLetter * static_cast<double>(bar.text.size()) <= wide)
      out += concat("<text class=\"in", bar.faint ? " faint" : "", "\" x=\"", left + wide / 2,
                    "\" y=\"", top + 14, "\">", escape_html(bar.text), "</text>");
  }
  return out + "\n</svg>\n";
}

}  // namespace draw
