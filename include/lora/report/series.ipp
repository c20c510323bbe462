#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/report/series.hpp"

namespace lora::report {

LORA_INLINE void Series::add(double x, double y) {
  if (!std::isfinite(x) || !std::isfinite(y)) return;
  points_.push_back({x, y});
  if (points_.size() > most) thin();
}

LORA_INLINE void Series::thin() {
  constexpr std::size_t group = 4;
  std::vector<Point> kept;
  const auto lower = [](const Point& a, const Point& b) { return a.y < b.y; };
  for (std::size_t begin = 0; begin < points_.size(); begin += group) {
    const auto first = points_.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = points_.begin() + static_cast<std::ptrdiff_t>(std::min(begin + group, points_.size()));
    auto [low, high] = std::minmax_element(first, last, lower);
    if (high < low) std::swap(low, high);
    kept.push_back(*low);
    if (high != low) kept.push_back(*high);
  }
  points_ = std::move(kept);
}

LORA_INLINE std::vector<Point> smoothed(const std::vector<Point>& points, double reach) {
  std::vector<double> sums{0};
  for (const Point& point : points) sums.push_back(sums.back() + point.y);
  std::vector<Point> result;
  std::size_t first = 0, last = 0;
  for (const Point& point : points) {
    while (points[first].x < point.x - reach) ++first;
    while (last < points.size() && points[last].x <= point.x + reach) ++last;
    result.push_back({point.x, (sums[last] - sums[first]) / static_cast<double>(last - first)});
  }
  return result;
}

}  // namespace lora::report
