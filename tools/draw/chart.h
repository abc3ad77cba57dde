// SPDX-License-Identifier: MIT
// Room: tools/draw. Charts as SVG for an HTML page. Colours and fonts are classes of the page's
// style sheet (chart_style), so that one picture serves light, dark and paper; a chart says in
// words what it shows, for people who do not see it. Sizes are units of the view box, about one CSS
// pixel each.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "tools/draw/scale.h"

namespace draw {

/// One curve of a chart.
struct Series {
  std::string name;
  Points points;
  int color = 0;        ///< a place in kColors; it also chooses the pattern of dashes
  bool dotted = false;  ///< the second kind of value of the same name: fine dots, as for a plan
  bool marks = false;   ///< a mark at each point, where points are few
};

/// What a chart shows.
struct Chart {
  std::string title;
  std::string x_name = "iteration";
  bool log = false;        ///< y by powers of ten, if every value is above 0
  bool from_zero = false;  ///< y begins at 0, unless it is by powers of ten
  std::vector<Series> series;
};

/// A colour on a light and on a dark page, as "#rrggbb".
struct Color {
  std::string_view light, dark;
};
/// Colours of series: at least 3 to 1 against their page, and far apart for every common kind of
/// colour blindness. Source of the hues: Okabe and Ito 2008.
inline constexpr std::array<Color, 6> kColors = {{{"#0067a5", "#56b4e9"},
                                                  {"#c04f00", "#f0943f"},
                                                  {"#00795a", "#2fc79b"},
                                                  {"#a8438a", "#e08ac2"},
                                                  {"#6b5d00", "#e5d84a"},
                                                  {"#555555", "#bbbbbb"}}};
/// Page, text, and fainter text; text has at least 4.5 to 1 against the page.
inline constexpr Color kPage = {"#ffffff", "#14171a"}, kText = {"#1b1f23", "#e6e8ea"},
                       kFaint = {"#57606a", "#9aa4ad"}, kLine = {"#d5dade", "#363c42"};

/// The SVG of a chart, with a title and a description in words. Empty if nothing is finite.
std::string line_chart(const Chart& chart);

/// The rules that a page with charts needs, for its <style>.
std::string chart_style();

/// The same series in words: "run a: from 10.8 at 5 to 8.31 at 60, lowest 8.31 at 60, highest 10.8
/// at 5".
std::string in_words(const Series& series);

/// `text` for HTML and attributes: the five special characters as entities, and characters that
/// HTML forbids as cli::one_line writes them.
std::string escape_html(std::string_view text);

}  // namespace draw
