#pragma once

#include <cstddef>
#include <vector>

namespace lora::report {

struct Point {
  double x = 0, y = 0;
  friend bool operator==(const Point&, const Point&) = default;
};

/// Points of a curve by ascending x, of any number: past `most` they are thinned, so that of neighbors the lowest and
/// the highest stay.
class Series {
 public:
  static constexpr std::size_t most = 2048;

  /// Values that are no finite numbers are left out.
  void add(double x, double y);
  const std::vector<Point>& points() const { return points_; }
  bool empty() const { return points_.empty(); }

 private:
  void thin();

  std::vector<Point> points_;
};

/// Each point's mean with those whose x differs by no more than `reach`.
std::vector<Point> smoothed(const std::vector<Point>& points, double reach);

}  // namespace lora::report

#ifndef LORA_COMPILED
#  include "lora/report/series.ipp"
#endif
