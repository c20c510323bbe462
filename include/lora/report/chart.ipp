#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/core/format.hpp"
#include "lora/core/printable.hpp"
#include "lora/report/chart.hpp"

namespace lora::report {

namespace detail {

/// What of the picture the curves have.
struct Frame {
  double left = 62, top = 34, right = 622, bottom = 216;
};

/// Ends of an axis and its marks.
struct Axis {
  std::vector<double> marks;
  double low = 0, high = 1;

  Axis(double low_, double high_, int most) : marks(ticks(low_, high_, most)), low(marks.front()), high(marks.back()) {}
  double share(double value) const { return (value - low) / (high - low); }
};

inline std::string element(std::string_view name, const std::string& attributes, const std::string& content) {
  return concat("<", name, attributes.empty() ? "" : " ", attributes, ">", content, "</", name, ">");
}

inline std::string text_at(double x, double y, std::string_view anchor, std::string_view text) {
  return element("text", concat("x=\"", fixed(x, 1), "\" y=\"", fixed(y, 1), "\" text-anchor=\"", anchor, "\""),
                 escaped(text));
}

inline std::string picture(double height, const std::string& title, const std::string& content) {
  return concat("<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 ", fixed(height, 0),
                "\" role=\"img\">", element("title", "", escaped(title)), content, "</svg>\n");
}

inline std::string line(double x1, double y1, double x2, double y2) {
  return concat("<line x1=\"", fixed(x1, 1), "\" y1=\"", fixed(y1, 1), "\" x2=\"", fixed(x2, 1), "\" y2=\"",
                fixed(y2, 1), "\"/>");
}

}  // namespace detail

LORA_INLINE std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : printable(text, true)) {
    switch (c) {
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '&':
        safe += "&amp;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

LORA_INLINE std::vector<double> ticks(double low, double high, int most) {
  // What is smaller is nothing, and what is larger lies at the end: between marks there are numbers still.
  constexpr double smallest = 1e-290, largest = 1e300;
  for (double* const end : {&low, &high}) *end = std::fabs(*end) < smallest ? 0 : std::clamp(*end, -largest, largest);
  const double size = std::max(std::fabs(low), std::fabs(high));
  if (!(high - low > 1e-12 * size)) {  // one value: something to both sides of it
    const double aside = size == 0 ? 1 : 0.5 * size;
    low -= aside;
    high += aside;
  }
  constexpr double slack = 1e-9;  // of a mark, so that one at an end is not followed by another
  const double unit = std::pow(10, std::floor(std::log10((high - low) / most)));
  double step = unit;
  const auto first = [&] { return std::floor(low / step + slack); };
  const auto last = [&] { return std::ceil(high / step - slack); };
  for (const double factor : {2.0, 5.0, 10.0, 20.0, 50.0, 100.0}) {
    if (last() - first() + 1 <= most) break;
    step = factor * unit;
  }
  std::vector<double> marks;
  for (double i = first(); i <= last(); ++i) marks.push_back(i * step);
  return marks;
}

LORA_INLINE std::string_view chart_style() {
  return "svg.chart{font:12px "
         "system-ui,sans-serif;max-width:100%;height:auto;--ink:#1f2328;--faint:#d0d7de;--c0:#0072b2;"
         "--c1:#d55e00;--c2:#009e73;--c3:#aa4499;--c4:#b8860b;--c5:#56b4e9}"
         "@media (prefers-color-scheme:dark){svg.chart{--ink:#d1d7e0;--faint:#3d444d;--c0:#58a6ff;--c1:#ff9d5c;"
         "--c2:#3fd39b;--c3:#e29ad2;--c4:#e3b341;--c5:#9ad4f5}}"
         "svg.chart text{fill:var(--ink)}svg.chart .grid line{stroke:var(--faint)}"
         "svg.chart path{fill:none;stroke-width:1.6;stroke-linejoin:round}svg.chart .faint{opacity:.35;stroke-width:1}"
         "svg.chart .title{font-weight:600}"
         "svg.chart .c0{stroke:var(--c0)}svg.chart .c1{stroke:var(--c1)}svg.chart .c2{stroke:var(--c2)}"
         "svg.chart .c3{stroke:var(--c3)}svg.chart .c4{stroke:var(--c4)}svg.chart .c5{stroke:var(--c5)}";
}

LORA_INLINE std::string svg_of(const Chart& chart, bool standalone) {
  using namespace detail;
  const double none = std::numeric_limits<double>::infinity();
  double x_low = none, x_high = -none, y_low = none, y_high = -none;
  for (const Curve& curve : chart.curves)
    for (const Point& point : curve.points) {
      x_low = std::min(x_low, point.x);
      x_high = std::max(x_high, point.x);
      y_low = std::min(y_low, point.y);
      y_high = std::max(y_high, point.y);
    }
  if (x_low > x_high) x_low = x_high = y_low = y_high = 0;
  const Axis x(x_low, x_high, 8), y(y_low, y_high, 6);
  const Frame frame;
  const auto across = [&](double value) { return frame.left + (frame.right - frame.left) * x.share(value); };
  const auto up = [&](double value) { return frame.bottom - (frame.bottom - frame.top) * y.share(value); };

  std::string grid, labels = element("text", "class=\"title\" x=\"8\" y=\"18\"", escaped(chart.title));
  for (const double mark : y.marks) {
    grid += line(frame.left, up(mark), frame.right, up(mark));
    labels += text_at(frame.left - 6, up(mark) + 4, "end", significant(mark, 4));
  }
  for (const double mark : x.marks) {
    grid += line(across(mark), frame.bottom, across(mark), frame.bottom + 4);
    labels += text_at(across(mark), frame.bottom + 18, "middle", significant(mark, 7));
  }
  std::string curves, legend;
  double at = frame.left;
  for (const Curve& curve : chart.curves) {
    const std::string style =
        concat("class=\"c", curve.color % colors, curve.faint ? " faint" : "", "\"",
               curve.color >= colors ? concat(" stroke-dasharray=\"", 2 + 2 * (curve.color / colors), " 3\"") : "");
    std::string path;
    for (const Point& point : curve.points)
      path += concat(path.empty() ? "M" : "L", fixed(across(point.x), 1), " ", fixed(up(point.y), 1));
    if (!path.empty()) curves += concat("<path ", style, " d=\"", path, "\"/>");
    if (curve.dotted || curve.points.size() == 1)
      for (const Point& point : curve.points)
        curves += concat("<circle ", style, " cx=\"", fixed(across(point.x), 1), "\" cy=\"", fixed(up(point.y), 1),
                         "\" r=\"2.5\" fill=\"none\"><title>", escaped(curve.label), ", ", significant(point.x, 7),
                         ": ", significant(point.y, 6), "</title></circle>");
    if (curve.label.empty() || curve.faint) continue;
    legend +=
        concat("<path ", style, " d=\"M", fixed(at, 1), " 246h18\"/>") + text_at(at + 23, 250, "start", curve.label);
    at += 40 + 6.6 * static_cast<double>(curve.label.size());
  }
  return picture(260, chart.title,
                 (standalone ? element("style", "", std::string(chart_style())) : "") + "<g class=\"grid\">" + grid +
                     "</g>" + labels + curves + legend);
}

LORA_INLINE std::string svg_of(const Bars& bars) {
  using namespace detail;
  constexpr double left = 138, right = 632, row_height = 24, bar_height = 16, row_top = 32;
  std::string drawn = element("text", "class=\"title\" x=\"8\" y=\"18\"", escaped(bars.title));
  const auto box = [](double x, double y, double width, double height, std::size_t color, const std::string& told) {
    const auto palette = static_cast<std::size_t>(colors);
    return element(
        "rect",
        concat("class=\"part\" x=\"", fixed(x, 1), "\" y=\"", fixed(y, 1), "\" width=\"", fixed(width, 1),
               "\" height=\"", fixed(height, 1), "\" style=\"fill:var(--c", color % palette, ")",
               color < palette ? "" : concat(";opacity:", fixed(1 / (1 + static_cast<double>(color / palette)), 2)),
               "\""),
        told.empty() ? "" : element("title", "", escaped(told)));
  };
  double y = row_top;
  for (const Bars::Row& row : bars.rows) {
    double sum = 0, before = 0;
    for (const Bars::Part& part : row.parts) sum += part.value;
    drawn += text_at(left - 8, y + 12, "end", row.label);
    for (std::size_t i = 0; i < row.parts.size() && sum > 0; ++i) {
      const double width = (right - left) * row.parts[i].value / sum;
      if (width > 0)
        drawn += box(left + before, y, width, bar_height, i,
                     concat(row.label, ", ", row.parts[i].label, ": ", significant(row.parts[i].value, 12), ", ",
                            fixed(100 * row.parts[i].value / sum, 1), " %"));
      before += width;
    }
    y += row_height;
  }
  double x = left;
  for (std::size_t i = 0; !bars.rows.empty() && i < bars.rows[0].parts.size(); ++i) {
    const std::string label = shortened(bars.rows[0].parts[i].label, 40);
    const double width = 30 + 6.8 * static_cast<double>(label.size());
    if (x > left && x + width > right) {
      x = left;
      y += 18;
    }
    drawn += box(x, y + 4, 10, 10, i, "") + text_at(x + 15, y + 13, "start", label);
    x += width;
  }
  return picture(y + 24, bars.title, drawn);
}

}  // namespace lora::report
