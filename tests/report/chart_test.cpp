#include "lora/report/chart.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lora/core/printable.hpp"

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

TEST_CASE("chart: marks of one value lie half of it to both sides, and around nothing 1") {
  CHECK(ticks(0, 0, 6) == std::vector<double>{-1, -0.5, 0, 0.5, 1});
  CHECK(ticks(5, 5, 6) == std::vector<double>{2, 4, 6, 8});
  CHECK(ticks(-4, -4, 4) == std::vector<double>{-6, -4, -2});
  CHECK(ticks(0, 0.3, 4) == std::vector<double>{0, 1 * 0.1, 2 * 0.1, 3 * 0.1});
  CHECK(ticks(0, 100, 11).size() == 11);
  CHECK(ticks(0, 100, 10) == std::vector<double>{0, 20, 40, 60, 80, 100});
  CHECK(ticks(1, 9, 2) == std::vector<double>{0, 10});
  CHECK(ticks(0, 1, 2) == std::vector<double>{0, 1});
  CHECK(ticks(-1, 1, 3) == std::vector<double>{-1, 0, 1});
}

TEST_CASE("chart: the smallest and the largest numbers have marks as well") {
  for (const double least : {5e-324, 1e-323, 1e-310, -1e-300}) CHECK(ticks(least, least, 6) == ticks(0, 0, 6));
  CHECK(ticks(0, 5e-324, 6) == ticks(0, 0, 6));
  CHECK(ticks(0, 1e-280, 6).back() == doctest::Approx(1e-280));
  constexpr double most = std::numeric_limits<double>::max();
  for (const auto& marks : {ticks(most, most, 6), ticks(-most, most, 6), ticks(-most, -most, 4)}) {
    CHECK(marks.size() >= 2);
    CHECK(marks.size() <= 6);
    CHECK(std::isfinite(marks.back() - marks.front()));
  }
}

TEST_CASE("chart: a whole picture, with its grid, marks, curves and legend") {
  const Chart chart{"t&t",
                    {{"a", {{0, 1}, {10, 3}}, 0}, {"bc", {{0, 3}, {10, 1}}, 13, false, true}, {"", {{5, 2}}, 2, true}}};
  const std::string svg = svg_of(chart);
  CAPTURE(svg);
  CHECK(svg ==
        R"x(<svg class="chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 260" role="img">)x"
        R"x(<title>t&amp;t</title><g class="grid"><line x1="62.0" y1="216.0" x2="622.0" y2="216.0"/>)x"
        R"x(<line x1="62.0" y1="170.5" x2="622.0" y2="170.5"/><line x1="62.0" y1="125.0" x2="622.0" y2="125.0"/>)x"
        R"x(<line x1="62.0" y1="79.5" x2="622.0" y2="79.5"/><line x1="62.0" y1="34.0" x2="622.0" y2="34.0"/>)x"
        R"x(<line x1="62.0" y1="216.0" x2="62.0" y2="220.0"/><line x1="174.0" y1="216.0" x2="174.0" y2="220.0"/>)x"
        R"x(<line x1="286.0" y1="216.0" x2="286.0" y2="220.0"/>)x"
        R"x(<line x1="398.0" y1="216.0" x2="398.0" y2="220.0"/>)x"
        R"x(<line x1="510.0" y1="216.0" x2="510.0" y2="220.0"/>)x"
        R"x(<line x1="622.0" y1="216.0" x2="622.0" y2="220.0"/></g>)x"
        R"x(<text class="title" x="8" y="18">t&amp;t</text><text x="56.0" y="220.0" text-anchor="end">1</text>)x"
        R"x(<text x="56.0" y="174.5" text-anchor="end">1.5</text>)x"
        R"x(<text x="56.0" y="129.0" text-anchor="end">2</text>)x"
        R"x(<text x="56.0" y="83.5" text-anchor="end">2.5</text>)x"
        R"x(<text x="56.0" y="38.0" text-anchor="end">3</text>)x"
        R"x(<text x="62.0" y="234.0" text-anchor="middle">0</text>)x"
        R"x(<text x="174.0" y="234.0" text-anchor="middle">2</text>)x"
        R"x(<text x="286.0" y="234.0" text-anchor="middle">4</text>)x"
        R"x(<text x="398.0" y="234.0" text-anchor="middle">6</text>)x"
        R"x(<text x="510.0" y="234.0" text-anchor="middle">8</text>)x"
        R"x(<text x="622.0" y="234.0" text-anchor="middle">10</text>)x"
        R"x(<path class="c0" d="M62.0 216.0L622.0 34.0"/>)x"
        R"x(<path class="c1" stroke-dasharray="6 3" d="M62.0 34.0L622.0 216.0"/>)x"
        R"x(<circle class="c1" stroke-dasharray="6 3" cx="62.0" cy="34.0" r="2.5" fill="none">)x"
        R"x(<title>bc, 0: 3</title></circle>)x"
        R"x(<circle class="c1" stroke-dasharray="6 3" cx="622.0" cy="216.0" r="2.5" fill="none">)x"
        R"x(<title>bc, 10: 1</title></circle><path class="c2 faint" d="M342.0 125.0"/>)x"
        R"x(<circle class="c2 faint" cx="342.0" cy="125.0" r="2.5" fill="none"><title>, 5: 2</title></circle>)x"
        R"x(<path class="c0" d="M62.0 246h18"/><text x="85.0" y="250.0" text-anchor="start">a</text>)x"
        R"x(<path class="c1" stroke-dasharray="6 3" d="M108.6 246h18"/>)x"
        R"x(<text x="131.6" y="250.0" text-anchor="start">bc</text></svg>)x"
        "\n");
  CHECK(svg_of(chart, true) == svg.substr(0, svg.find("<g ")) + "<style>" + std::string(chart_style()) + "</style>" +
                                   svg.substr(svg.find("<g ")));
}

TEST_CASE("chart: a whole picture of parts, with their shares and their legend") {
  const Bars bars{"t&t", {{"one", {{"a", 3}, {"b", 1}}}, {"two", {{"a", 0}, {"b", 2.5}}}}};
  const std::string svg = svg_of(bars);
  CAPTURE(svg);
  CHECK(svg == R"x(<svg class="chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 104" role="img">)x"
               R"x(<title>t&amp;t</title><text class="title" x="8" y="18">t&amp;t</text>)x"
               R"x(<text x="130.0" y="44.0" text-anchor="end">one</text>)x"
               R"x(<rect class="part" x="138.0" y="32.0" width="370.5" height="16.0" style="fill:var(--c0)">)x"
               R"x(<title>one, a: 3, 75.0 %</title></rect>)x"
               R"x(<rect class="part" x="508.5" y="32.0" width="123.5" height="16.0" style="fill:var(--c1)">)x"
               R"x(<title>one, b: 1, 25.0 %</title></rect><text x="130.0" y="68.0" text-anchor="end">two</text>)x"
               R"x(<rect class="part" x="138.0" y="56.0" width="494.0" height="16.0" style="fill:var(--c1)">)x"
               R"x(<title>two, b: 2.5, 100.0 %</title></rect>)x"
               R"x(<rect class="part" x="138.0" y="84.0" width="10.0" height="10.0" style="fill:var(--c0)"></rect>)x"
               R"x(<text x="153.0" y="93.0" text-anchor="start">a</text>)x"
               R"x(<rect class="part" x="174.8" y="84.0" width="10.0" height="10.0" style="fill:var(--c1)"></rect>)x"
               R"x(<text x="189.8" y="93.0" text-anchor="start">b</text></svg>)x"
               "\n");
  CHECK(svg_of(Bars{"none", {}}).find("<rect") == std::string::npos);
  CHECK(svg_of(Bars{"none", {}}).find("viewBox=\"0 0 640 56\"") != std::string::npos);
}

TEST_CASE("chart: colors past the palette are fainter the farther, and a long label is shortened") {
  Bars bars{"t", {{"row", {}}}};
  for (int i = 0; i < 13; ++i) bars.rows[0].parts.push_back({"x", 1});
  bars.rows[0].parts[0].label = std::string(30, 'a') + std::string(30, 'b');
  const std::string svg = svg_of(bars);
  for (const char* style : {"var(--c0)\"", "var(--c5)\"", "var(--c0);opacity:0.50\"", "var(--c5);opacity:0.50\"",
                            "var(--c0);opacity:0.33\""}) {
    CAPTURE(style);
    CHECK(holds(svg, style));
  }
  CHECK(holds(svg, ">" + lora::shortened(bars.rows[0].parts[0].label, 40) + "</text>"));
  CHECK(holds(svg, "<title>row, " + bars.rows[0].parts[0].label + ": 1, 7.7 %</title>"));
}

TEST_CASE("chart: each color of the palette has a value for light and dark, and a class of its own") {
  const std::string style(chart_style());
  const auto count = [&](const std::string& part) {
    int found = 0;
    for (auto at = style.find(part); at != style.npos; at = style.find(part, at + 1)) ++found;
    return found;
  };
  for (int i = 0; i < colors; ++i) {
    const std::string name = "--c" + std::to_string(i);
    CHECK(count(name + ":#") == 2);
    CHECK(count("svg.chart .c" + std::to_string(i) + "{stroke:var(" + name + ")}") == 1);
  }
  CHECK(count("--c6") == 0);
  for (const char* name : {"--ink:#", "--faint:#"}) CHECK(count(name) == 2);
  for (const char* used : {"text{fill:var(--ink)}", ".grid line{stroke:var(--faint)}", ".title{",
                           ".faint{opacity:", "@media (prefers-color-scheme:dark){svg.chart{"})
    CHECK(count(used) == 1);
}

TEST_CASE("chart: marks have four digits at the side and seven below, points six and seven, parts twelve") {
  const Chart chart{"t", {{"dots", {{0, 1.001}, {1234567.5, 1.0087654321}}, 0, false, true}}};
  const std::string svg = svg_of(chart);
  CAPTURE(svg);
  for (const char* mark : {">1</text>", ">1.002</text>", ">1.01</text>", ">200000</text>", ">1400000</text>",
                           "<title>dots, 0: 1.001</title>", "<title>dots, 1234568: 1.00877</title>"}) {
    CAPTURE(mark);
    CHECK(holds(svg, mark));
  }
  const std::string high = svg_of(Chart{"t", {{"", {{0, 10.001}, {1, 10.009}}, 0}}});
  CHECK(holds(high, ">10.01</text>"));
  CHECK_FALSE(holds(high, ">10.002</text>"));
  CHECK(holds(svg_of(Bars{"t", {{"row", {{"a", 123456789012}}}}}), "<title>row, a: 123456789012, 100.0 %</title>"));
}

}  // namespace chart_test
