#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lora/report/series.hpp"

// Pictures as SVG.

namespace lora::report {

/// Text of any origin as the content of an element or an attribute.
std::string escaped(std::string_view text);

/// Colors of the palette.
constexpr int colors = 6;

struct Curve {
  std::string label;
  std::vector<Point> points;
  int color = 0;        ///< of the palette; past its end again from the beginning, with other dashes
  bool faint = false;   ///< behind another that says the same more clearly
  bool dotted = false;  ///< with a mark at each point
};

struct Chart {
  std::string title;
  std::vector<Curve> curves;
};

/// Round numbers, `most` at most, of which the first is not above `low` and the last not below `high`.
std::vector<double> ticks(double low, double high, int most);

/// Parts of a whole, a row each.
struct Bars {
  struct Part {
    std::string label;
    double value = 0;
  };
  struct Row {
    std::string label;
    std::vector<Part> parts;  ///< the same of each row, in the same order
  };
  std::string title;
  std::vector<Row> rows;
};

/// Each row as a bar of 560 that its parts share, as an element `svg` of 640 and of a height by the rows. Each part
/// tells its label and its value where one points at it.
std::string svg_of(const Bars& bars);

/// The chart as an element `svg` of 640 × 260. `standalone`: as a file of its own, with its style.
std::string svg_of(const Chart& chart, bool standalone = false);

/// The style that charts want, for a light background and a dark one.
std::string_view chart_style();

}  // namespace lora::report

#ifndef LORA_COMPILED
#  include "lora/report/chart.ipp"
#endif
