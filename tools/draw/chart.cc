// SPDX-License-Identifier: MIT
// Room: tools/draw. Charts; see chart.h.
#include "tools/draw/chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tools/cli/text.h"

namespace draw {
namespace {

using cli::concat;

constexpr double kWidth = 400, kHeight = 230, kLeft = 52, kRight = 10, kTop = 10, kBottom = 34;
constexpr size_t kMostPoints = 1000;  // some three to a pixel

std::string coordinate(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  std::string out = text;
  if (out.ends_with(".0")) out.resize(out.size() - 2);
  return out == "-0" ? "0" : out;
}

struct Frame {
  Axis x, y;
  double across(double v) const { return kLeft + x.place(v) * (kWidth - kLeft - kRight); }
  double down(double v) const {
    return kHeight - kBottom - y.place(v) * (kHeight - kTop - kBottom);
  }
};

Frame frame_of(const Chart& chart) {
  std::vector<const std::vector<double>*> xs, ys;
  for (const Series& series : chart.series) {
    xs.push_back(&series.points.x);
    ys.push_back(&series.points.y);
  }
  const Range x = range_of(xs), y = range_of(ys);
  const bool log = chart.log && y.low > 0 && y.high > 3 * y.low;
  double low = chart.from_zero && !log ? std::min(0.0, y.low) : y.low, high = y.high;
  if (!log && high > low) {  // some air; curves do not lie on the frame
    const double air = 0.04 * (high - low);
    high += air;
    if (low != 0) low = low > 0 && low < air ? 0 : low - air;
  }
  return {axis(x.low, x.high, 5), axis(low, high, 5, log)};
}

std::string grid(const Frame& frame, const Chart& chart) {
  std::string out;
  const std::string left = coordinate(kLeft), right = coordinate(kWidth - kRight);
  for (const double tick : frame.y.ticks) {
    const std::string y = coordinate(frame.down(tick));
    out += concat("<path class=\"grid\" d=\"M", left, " ", y, "H", right, "\"/><text x=\"",
                  coordinate(kLeft - 6), "\" y=\"", y, "\" dy=\".35em\" text-anchor=\"end\">",
                  short_number(tick), "</text>");
  }
  for (const double tick : frame.x.ticks) {
    const std::string x = coordinate(frame.across(tick));
    out += concat("<path class=\"grid\" d=\"M", x, " ", coordinate(kHeight - kBottom), "v4\"/>",
                  "<text x=\"", x, "\" y=\"", coordinate(kHeight - kBottom + 16),
                  "\" text-anchor=\"middle\">", short_number(tick), "</text>");
  }
  return out + concat("<text x=\"", right, "\" y=\"", coordinate(kHeight - 3),
                      "\" text-anchor=\"end\">", escape_html(chart.x_name), "</text>");
}

std::string path_of(const Frame& frame, const Series& series) {
  const Points points = thin(series.points, kMostPoints);
  std::string line, marks, values;
  bool drawn = false;
  for (size_t i = 0; i < points.x.size(); ++i) {
    const double value = points.y[i];
    if (!points.has(i) || (frame.y.log && value <= 0)) {
      drawn = false;
      continue;
    }
    const std::string x = coordinate(frame.across(points.x[i]));
    const std::string y = coordinate(frame.down(value));
    const bool alone = !drawn && (i + 1 == points.x.size() || !points.has(i + 1));
    line += concat(drawn ? "L" : "M", x, " ", y);
    if (alone || series.marks) marks += concat("<circle cx=\"", x, "\" cy=\"", y, "\" r=\"2.5\"/>");
    values += concat(values.empty() ? "" : " ", x, ",", short_number(points.x[i]), ",",
                     short_number(value));
    drawn = true;
  }
  return concat("<g class=\"c", series.color % static_cast<int>(kColors.size()),
                series.dotted ? " dotted" : "", "\" data-name=\"", escape_html(series.name),
                "\" data-values=\"", values, "\"><path d=\"", line, "\"/>", marks, "</g>");
}

}  // namespace

std::string in_words(const Series& series) {
  const Points& p = series.points;
  size_t first = p.x.size(), last = 0, lowest = 0, highest = 0;
  for (size_t i = 0; i < p.x.size(); ++i) {
    if (!p.has(i)) continue;
    if (first == p.x.size()) first = lowest = highest = i;
    last = i;
    if (p.y[i] < p.y[lowest]) lowest = i;
    if (p.y[i] > p.y[highest]) highest = i;
  }
  if (first == p.x.size()) return series.name + ": no finite value";
  const auto at = [&](size_t i) { return short_number(p.y[i]) + " at " + short_number(p.x[i]); };
  if (first == last) return concat(series.name, ": ", at(first));
  return concat(series.name, ": from ", at(first), " to ", at(last), ", lowest ", at(lowest),
                ", highest ", at(highest));
}

std::string line_chart(const Chart& chart) {
  if (std::none_of(chart.series.begin(), chart.series.end(),
                   [](const Series& series) { return series.points.any(); }))
    return "";
  const Frame frame = frame_of(chart);
  std::string words, curves;
  for (const Series& series : chart.series) {
    words += concat(words.empty() ? "" : ". ", in_words(series));
    curves += path_of(frame, series);
  }
  return concat("<svg class=\"chart\" role=\"img\" viewBox=\"0 0 ", kWidth, " ", kHeight,
                "\" aria-label=\"", escape_html(chart.title), ": ", escape_html(words), "\">",
                grid(frame, chart), curves, "</svg>\n");
}

std::string chart_style() {
  const auto variables = [](std::string_view Color::*side) {
    std::string out = concat("--page:", kPage.*side, ";--text:", kText.*side,
                             ";--faint:", kFaint.*side, ";--line:", kLine.*side);
    for (size_t i = 0; i < kColors.size(); ++i) out += concat(";--c", i, ":", kColors[i].*side);
    return out;
  };
  std::string out = concat(":root{color-scheme:light dark;", variables(&Color::light), "}\n",
                           "@media (prefers-color-scheme:dark){:root{", variables(&Color::dark),
                           "}}\n", "@media print{:root{", variables(&Color::light), "}}\n");
  constexpr const char* kDashes[] = {"none", "7 3", "2 2", "9 3 2 3", "12 4", "4 4"};
  for (size_t i = 0; i < kColors.size(); ++i)
    out += concat(".c", i, "{--color:var(--c", i, ");--dash:", kDashes[i], "}\n");
  return out +
         // A long number at an edge reaches into the margin.
         ".chart{display:block;width:100%;height:auto;font-size:12px;overflow:visible}\n"
         ".chart text{fill:var(--faint)}\n"
         ".chart .grid{stroke:var(--line);fill:none}\n"
         ".chart g path{fill:none;stroke:var(--color);stroke-width:1.5;stroke-linejoin:round;"
         "stroke-dasharray:var(--dash)}\n"
         ".chart g.dotted path{stroke-dasharray:1 3;stroke-linecap:round}\n"
         ".chart circle{fill:var(--color)}\n";
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : cli::one_line(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace draw
