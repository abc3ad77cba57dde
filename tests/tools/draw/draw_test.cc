// SPDX-License-Identifier: MIT
// Pictures of numbers: axes, thinning, curves in a terminal, charts, colours.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/draw/contrast.h"
#include "tools/draw/bars.h"
#include "tools/draw/chart.h"
#include "tools/draw/curve.h"
#include "tools/draw/scale.h"

namespace {

using testing::AllOf;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using tests::contrast;
using tests::mixed;
using tests::rgb;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Axis, TicksAreRoundNumbersWithinTheEnds) {
  EXPECT_THAT(draw::axis(0, 60, 5).ticks, ElementsAre(0, 20, 40, 60));
  EXPECT_THAT(draw::axis(-1.3, 2.2, 5).ticks, ElementsAre(-1, 0, 1, 2));
  const draw::Axis small = draw::axis(6e-9, 6.4e-9, 4);
  ASSERT_EQ(small.ticks.size(), size_t{5});
  EXPECT_THAT(small.ticks[1] / 6.1e-9, DoubleNear(1, 1e-9));
  EXPECT_EQ(small.place(6e-9), 0);
  EXPECT_EQ(small.place(6.4e-9), 1);
  EXPECT_THAT(draw::axis(0.5, 2000, 5, true).ticks, ElementsAre(1, 10, 100, 1000));
  EXPECT_THAT(draw::axis(1, 6, 5, true).ticks, ElementsAre(1, 2, 5));
  EXPECT_THAT(draw::axis(1, 100, 5, true).place(10), DoubleNear(0.5, 1e-12));
}

TEST(Axis, EqualEndsAreMovedApart) {
  for (const double value : {0.0, 2.5, -7.0, 1e300, 3e-300, 5e-324}) {
    const draw::Axis axis = draw::axis(value, value, 5);
    EXPECT_LT(axis.low, value);
    EXPECT_GT(axis.high, value);
    EXPECT_FALSE(axis.ticks.empty());
    EXPECT_LT(axis.ticks.size(), size_t{20});
  }
  EXPECT_LT(draw::axis(1, 1 + 1e-15, 5).ticks.size(), size_t{20});
  EXPECT_LT(draw::axis(4, 4, 5, true).low, 4);
  EXPECT_FALSE(draw::axis(0, 5e-324, 5).ticks.empty());
}

TEST(ShortNumber, IsShortAndRight) {
  const std::pair<double, const char*> cases[] = {
      {0, "0"},           {2.5746, "2.575"}, {0.0006, "0.0006"}, {6e-9, "6e-09"}, {9999, "9999"},
      {590123, "590.1k"}, {1.2e6, "1.2M"},   {3.5e9, "3.5G"},    {2e12, "2T"},    {1e16, "1e+16"},
      {-12000, "-12k"},   {kNan, "nan"},     {kInf, "inf"},      {-kInf, "-inf"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(draw::short_number(value), text);
}

TEST(Thin, KeepsEndsPeaksAndGaps) {
  draw::Points points;
  for (int i = 0; i < 100000; ++i) {
    points.x.push_back(i);
    points.y.push_back(i == 31234 ? 50 : i == 76543 ? -50 : i == 60000 ? kNan : std::sin(i * 1e-3));
  }
  const draw::Points few = draw::thin(points, 400);
  EXPECT_LE(few.x.size(), size_t{500});
  EXPECT_GE(few.x.size(), size_t{200});
  EXPECT_EQ(few.x.front(), 0);
  EXPECT_EQ(few.x.back(), 99999);
  int seen = 0;
  for (size_t i = 0; i < few.x.size(); ++i) {
    if (i > 0) {
      EXPECT_LT(few.x[i - 1], few.x[i]);
    }
    const double y = points.y[static_cast<size_t>(few.x[i])];
    EXPECT_TRUE(few.y[i] == y || (std::isnan(y) && std::isnan(few.y[i])));
    seen += few.x[i] == 31234 || few.x[i] == 76543 || few.x[i] == 60000;
  }
  EXPECT_EQ(seen, 3);
  const draw::Points same = draw::thin(points, 100000);
  EXPECT_EQ(same.x.size(), points.x.size());
}

TEST(TerminalCurve, DrawsWithStarsAndDots) {
  const draw::Points points{{0, 1, 2, 3}, {4, 3, 2, 1}};
  EXPECT_EQ(draw::terminal_curve("loss", points, {.columns = 24, .rows = 4, .ascii = true}),
            "4 ****\n"
            "      *******\n"
            "             *******\n"
            "1                   ****\n"
            "  0       loss 1       3\n");
  EXPECT_EQ(draw::terminal_curve("loss", {{0, 1}, {0, 15}}, {.columns = 24, .rows = 4}),
            "15                 ⣀⡠⠔⠒⠉\n"
            "             ⢀⣀⠤⠒⠊⠉\n"
            "        ⣀⡠⠤⠒⠉⠁\n"
            " 0 ⣀⠤⠔⠊⠉\n"
            "   0      loss 15      1\n");
}

TEST(TerminalCurve, LeavesGapsAndFitsTheTerminal) {
  const std::string gap = draw::terminal_curve("l", {{0, 1, 2, 3, 4}, {1, 1, kNan, 1, 1}},
                                               {.columns = 26, .rows = 4, .ascii = true});
  EXPECT_THAT(gap, HasSubstr("\n  *******          *******\n")) << gap;
  EXPECT_EQ(draw::terminal_curve("l", {{0, 1}, {kNan, kInf}}, {}), "l: no values yet\n");
  EXPECT_EQ(draw::terminal_curve("l", {}, {}), "l: no values yet\n");
  for (const int columns : {1, 24, 37, 200}) {
    const std::string text =
        draw::terminal_curve(std::string(60, 'n'), {{1e5, 123456789}, {1e-9, 12345.678}},
                             {.columns = columns, .rows = 5});
    int width = 0, widest = 0, lines = 0;
    for (const char c : text) {
      if (c == '\n')
        widest = std::max(widest, width), width = 0, ++lines;
      else
        width += (c & 0xc0) != 0x80;
    }
    EXPECT_LE(widest, std::max(columns, 24)) << text;
    EXPECT_EQ(lines, 6);
  }
}

TEST(LineChart, SaysInWordsWhatItShows) {
  const draw::Series series{"a<b", {{5, 10, 15}, {3, 1, 2}}, 0};
  EXPECT_EQ(draw::in_words(series), "a<b: from 3 at 5 to 2 at 15, lowest 1 at 10, highest 3 at 5");
  const std::string svg = draw::line_chart({.title = "Loss & more", .series = {series}});
  EXPECT_THAT(svg, AllOf(HasSubstr("role=\"img\""),
                         HasSubstr("aria-label=\"Loss &amp; more: a&lt;b: from 3 at 5"),
                         HasSubstr("data-values=\"52,5,3 221,10,1 390,15,2\"")));
}

TEST(LineChart, DrawsNothingThatOverflows) {
  const std::string svg = draw::line_chart(
      {.title = "t", .series = {{"s", {{1, 2, 3, 4}, {1e308, -1e308, 1e149, -1e149}}, 0}}});
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf")), HasSubstr("-1e+149")));
}

TEST(LineChart, BreaksAtGapsAndShowsLonelyPoints) {
  const auto path = [](const draw::Points& points) {
    const std::string svg = draw::line_chart({.title = "t", .series = {{"s", points, 0}}});
    const size_t at = svg.find("<g class=\"c0\""), d = svg.find("<path d=\"", at);
    return svg.substr(d + 9, svg.find("</g>", d) - d - 9);
  };
  const std::string gap = path({{0, 1, 2, 3, 4}, {1, 2, kNan, 1, 2}});
  EXPECT_EQ(std::count(gap.begin(), gap.end(), 'M'), 2) << gap;
  EXPECT_THAT(gap, Not(HasSubstr("nan")));
  EXPECT_THAT(path({{0, 1, 2, 3}, {1, kNan, 2, kNan}}), HasSubstr("<circle"));
  EXPECT_EQ(draw::line_chart({.title = "t", .series = {{"s", {{1, 2}, {kNan, kNan}}, 0}}}), "");
}

/// Whether a picture has a coordinate or a label that is no number.
bool has_no_number(const std::string& picture) {
  return picture.find("nan") != std::string::npos || picture.find("inf") != std::string::npos;
}

// Any double for x and y: the picture has numbers alone, and labels that are near its values.
TEST(Pictures, AreWholeWhateverTheValues) {
  const std::vector<double> odd = {kNan,   kInf,   -kInf,  0,      -0.0,  5e-324, 1e-310,   -1e-310,
                                   1e-300, 1e-298, 1e-150, 2.5,    1e9,   -3,     1e149,    -1e149,
                                   1e150,  1e308,  -1e308, 3e-162, 1e-20, 1,      1 + 1e-15};
  std::mt19937 random(4);
  for (int round = 0; round < 20000; ++round) {
    draw::Chart chart{.title = "t", .log = random() % 2 == 0, .from_zero = random() % 4 == 0};
    draw::Points points;
    for (size_t i = 1 + random() % 5; i-- > 0;) {
      points.x.push_back(random() % 2 == 0 ? static_cast<double>(random() % 100)
                                           : odd[random() % odd.size()]);
      points.y.push_back(odd[random() % odd.size()]);
    }
    chart.series = {{.name = "a", .points = points},
                    {.name = "b", .points = points, .marks = true}};
    const std::string picture = draw::line_chart(chart);
    EXPECT_EQ(picture.empty(), !points.any());
    EXPECT_FALSE(has_no_number(picture)) << picture;
    const std::string curve = draw::terminal_curve("loss", points, {.ascii = true});
    EXPECT_FALSE(has_no_number(curve)) << curve;
    EXPECT_EQ(curve.find('*') == std::string::npos, !points.any()) << curve;
    if (HasFailure()) return;
  }
}

TEST(Pictures, AGapOfOneCoordinateIsAGap) {
  const draw::Points points = {{1, kNan, 3, kInf, 5}, {2, 2, 4, 4, 2}};
  EXPECT_EQ(draw::in_words({.name = "a", .points = points}),
            "a: from 2 at 1 to 2 at 5, lowest 2 at 1, highest 4 at 3");
  const std::string svg = draw::line_chart({.title = "t", .series = {{.points = points}}});
  EXPECT_THAT(svg, HasSubstr("data-values=\"52,1,2 221,3,4 390,5,2\""));
  draw::Points many;
  for (int i = 0; i < 5000; ++i) many.x.push_back(i == 1000 ? kNan : i), many.y.push_back(1);
  const draw::Points fewer = draw::thin(many, 100);
  EXPECT_EQ(std::ranges::count_if(fewer.x, [](double x) { return std::isnan(x); }), 1);
}

TEST(BarPicture, LeavesOutWhatIsNoTime) {
  const std::string picture = draw::bar_picture(
      {.rows = {"a"}, .bars = {{.begin = kNan, .end = 2}, {.begin = 1, .end = kInf}, {.end = 3}}});
  EXPECT_FALSE(has_no_number(picture)) << picture;
}

TEST(BarPicture, ShowsBoxesAndTextWhereThereIsRoom) {
  const std::string svg = draw::bar_picture({.title = "a<b",
                                             .words = "w",
                                             .rows = {"r0", "r1"},
                                             .legend = {"f"},
                                             .bars = {{0, 0, 1, "12", 0, false},
                                                      {1, 1, 2, "123456789", 1, true},
                                                      {1, 90, 100, "", 0, false}}});
  EXPECT_THAT(svg, AllOf(testing::StartsWith("<svg xmlns="), HasSubstr("a&lt;b: w"),
                         HasSubstr(">12</text>"), Not(HasSubstr(">123456789</text>")),
                         HasSubstr("<title>123456789</title>"), HasSubstr("class=\"c1 faint\"")));
  // However many boxes there are, the picture stays a few thousand pixels wide.
  draw::BarPicture many{.title = "t", .words = "w", .rows = {"r"}, .legend = {}, .bars = {}};
  for (int i = 0; i < 3000; ++i) many.bars.push_back({0, double(i), double(i + 1), "x", 0, false});
  EXPECT_THAT(draw::bar_picture(many), HasSubstr("width=\"8080\""));
}

TEST(Colors, CanBeReadOnBothPages) {
  // The black and white of WCAG's own examples.
  EXPECT_DOUBLE_EQ(contrast(rgb("#000000"), rgb("#ffffff")), 21);
  EXPECT_NEAR(contrast(rgb("#777777"), rgb("#ffffff")), 4.48, 0.01);
  const std::string svg =
      draw::bar_picture({.title = "t", .words = "w", .rows = {}, .legend = {}, .bars = {}});
  const size_t at = svg.find("rect.faint{fill-opacity:");
  ASSERT_NE(at, std::string::npos);
  const double faint = std::stod(svg.substr(svg.find(':', at) + 1));
  EXPECT_THAT(svg, AllOf(HasSubstr("text.in{fill:var(--page)"),
                         HasSubstr("text.in.faint{fill:var(--text)")));
  for (std::string_view draw::Color::*side : {&draw::Color::light, &draw::Color::dark}) {
    const tests::Rgb page = rgb(draw::kPage.*side), text = rgb(draw::kText.*side);
    for (const draw::Color& color : draw::kColors) {
      // A box's text has the page's colour on the box's; in a faint box it is the page's text.
      EXPECT_GE(contrast(rgb(color.*side), page), 4.5) << color.*side;
      EXPECT_GE(contrast(text, mixed(rgb(color.*side), page, faint)), 4.5) << color.*side;
    }
    EXPECT_GE(contrast(text, page), 7.0);
    EXPECT_GE(contrast(rgb(draw::kFaint.*side), page), 4.5);
  }
}

TEST(EscapeHtml, LeavesNothingThatABrowserReads) {
  EXPECT_EQ(draw::escape_html("<a href='x' \"y\">&\x01\xff"),
            "&lt;a href=&#39;x&#39; &quot;y&quot;&gt;&amp;\\x01\\xff");
}

}  // namespace
