#include "lora/report/chart.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

namespace chart_test {

using namespace lora::report;

namespace {

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("chart: marks are round, few, and reach around what they are for") {
  CHECK(ticks(0, 10, 6) == std::vector<double>{0, 2, 4, 6, 8, 10});
  CHECK(ticks(0.3, 2.9, 4) == std::vector<double>{0, 1, 2, 3});
  CHECK(ticks(-3, 4, 5) == std::vector<double>{-4, -2, 0, 2, 4});
  for (const double low : {-1e9, -3.7, 0.0, 1e-9, 0.99999, 12345.0})
    for (const double width : {1e-9, 0.37, 1.0, 2.5, 99.0, 1e6, 1e12})
      for (const int most : {4, 6, 8}) {
        const std::vector<double> marks = ticks(low, low + width, most);
        if (!(low < low + width)) continue;
        CAPTURE(low);
        CAPTURE(width);
        CHECK(marks.size() >= 2);
        CHECK(marks.size() <= static_cast<std::size_t>(most));
        const double slack = 1e-9 * (std::fabs(low) + width);
        CHECK(marks.front() <= low + slack);
        CHECK(marks.back() >= low + width - slack);
      }
  // One value has room on both sides.
  for (const double value : {0.0, 5.0, -2e-7, 3e8}) {
    const std::vector<double> marks = ticks(value, value, 6);
    CHECK(marks.front() < value);
    CHECK(marks.back() > value);
  }
}

TEST_CASE("chart: text of any origin is text") {
  CHECK(escaped("<script>alert('1')</script> & \"x\"") ==
        "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt; &amp; &quot;x&quot;");
  CHECK(escaped(std::string("a\x1b[2J")) == "a\\x1B[2J");
  CHECK(escaped("zwölf\n") == "zwölf\n");
}

TEST_CASE("chart: points lie where the marks say, the first at the left and the highest at the top") {
  const Chart chart{"a <title>", {{"one", {{0, 0}, {5, 10}, {10, 5}}, 0}, {"two", {{0, 10}}, 7}}};
  const std::string svg = svg_of(chart);
  CAPTURE(svg);
  CHECK(svg.starts_with("<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 260\""));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(holds(svg, "<title>a &lt;title&gt;</title>"));
  CHECK_FALSE(holds(svg, "<style>"));
  CHECK(holds(svg_of(chart, true), "<style>"));
  CHECK(holds(svg, "<path class=\"c0\" d=\"M62.0 216.0L342.0 34.0L622.0 125.0\"/>"));
  // A single point has a mark, a color past the palette's end a dash.
  CHECK(holds(svg, "<circle class=\"c1\" stroke-dasharray=\"4 3\" cx=\"62.0\" cy=\"34.0\""));
  const std::string first_past_it = svg_of({"t", {{"six", {{0, 1}, {1, 2}}, 6}, {"five", {{0, 1}, {1, 2}}, 5}}});
  CHECK(holds(first_past_it, "<path class=\"c0\" stroke-dasharray=\"4 3\""));
  CHECK(holds(first_past_it, "<path class=\"c5\" d="));
  CHECK(holds(svg, "<title>two, 0: 10</title>"));
  for (const char* label : {">one</text>", ">two</text>", ">0</text>", ">10</text>"}) CHECK(holds(svg, label));
}

TEST_CASE("chart: a faint curve has no name, a dotted one a mark at each point, and none at all is a frame") {
  const std::string svg =
      svg_of({"t", {{"behind", {{0, 1}, {1, 2}}, 0, true}, {"dots", {{0, 1}, {1, 2}}, 1, false, true}}});
  CHECK(holds(svg, "<path class=\"c0 faint\""));
  CHECK_FALSE(holds(svg, ">behind</text>"));
  CHECK(holds(svg, "<title>dots, 0: 1</title>"));
  CHECK(holds(svg, "<title>dots, 1: 2</title>"));
  const std::string empty = svg_of(Chart{"nothing", {}});
  CHECK(holds(empty, ">nothing</text>"));
  CHECK_FALSE(holds(empty, "<path"));
  CHECK_FALSE(holds(empty, "nan"));
}

TEST_CASE("chart: the parts of a bar share it, one behind the other, and their labels wrap below") {
  const std::string long_label(40, 'x');
  const Bars bars{"counts",
                  {{"one", {{"a", 3}, {"b", 0}, {long_label, 1}}}, {"two", {{"a", 0}, {"b", 0}, {long_label, 0}}}}};
  const std::string svg = svg_of(bars);
  CAPTURE(svg);
  for (const char* part :
       {"viewBox=\"0 0 640 104\"", "x=\"138.0\" y=\"32.0\" width=\"370.5\" height=\"16.0\" style=\"fill:var(--c0)\"",
        "x=\"508.5\" y=\"32.0\" width=\"123.5\" height=\"16.0\" style=\"fill:var(--c2)\"", ">two</text>",
        "x=\"138.0\" y=\"84.0\" width=\"10.0\"", "x=\"174.8\" y=\"84.0\" width=\"10.0\""}) {
    CAPTURE(part);
    CHECK(holds(svg, part));
  }
  CHECK_FALSE(holds(svg, "<title>one, b"));  // of nothing there is nothing to point at
  CHECK_FALSE(holds(svg, "<title>two"));
  Bars many{"counts", {{"row", {}}}};
  for (int i = 0; i < 12; ++i) many.rows[0].parts.push_back({long_label, 1});
  const std::string wrapped = svg_of(many);
  CHECK(holds(wrapped, "style=\"fill:var(--c0);opacity:0.50\""));  // the palette again, fainter
  CHECK(holds(wrapped, "x=\"138.0\" y=\"78.0\" width=\"10.0\""));  // the second label's line
}

}  // namespace chart_test
