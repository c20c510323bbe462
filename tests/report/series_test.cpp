#include "lora/report/series.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace series_test {

using namespace lora::report;

TEST_CASE("series: few points stay as they are, without those that are no numbers") {
  Series series;
  const double nan = std::nan(""), infinite = std::numeric_limits<double>::infinity();
  CHECK(series.empty());
  series.add(1, 5);
  series.add(2, nan);
  series.add(3, infinite);
  series.add(nan, 1);
  series.add(4, -7);
  CHECK(series.points() == std::vector<Point>{{1, 5}, {4, -7}});
}

TEST_CASE("series: any number of points becomes a bounded one that has every extreme, in order") {
  Series series;
  for (int i = 0; i < 100'000; ++i) series.add(i, i == 1234 ? 50 : i == 77'777 ? -50 : std::sin(0.01 * i));
  const auto& points = series.points();
  CHECK(points.size() <= Series::most);
  CHECK(points.size() > Series::most / 4);
  CHECK(std::is_sorted(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.x < b.x; }));
  for (const Point& extreme : {Point{1234, 50}, Point{77'777, -50}})
    CHECK(std::find(points.begin(), points.end(), extreme) != points.end());
  for (const Point& point : points)
    if (point.y > -50 && point.y < 50) CHECK(point.y == std::sin(0.01 * point.x));
}

TEST_CASE("series: at the limit nothing is left out, and one more thins") {
  Series series;
  for (std::size_t i = 0; i < Series::most; ++i) series.add(static_cast<double>(i), 1);
  CHECK(series.points().size() == Series::most);
  series.add(1e6, 1);
  CHECK(series.points().size() < Series::most);
}

TEST_CASE("series: a mean is of the neighbors within reach, on both sides") {
  const std::vector<Point> points{{0, 1}, {1, 2}, {2, 6}, {10, 4}, {11, 8}};
  CHECK(smoothed(points, 1) == std::vector<Point>{{0, 1.5}, {1, 3}, {2, 4}, {10, 6}, {11, 6}});
  CHECK(smoothed(points, 0) == points);
  CHECK(smoothed({}, 3).empty());
}

TEST_CASE("series: of four neighbors the lowest and the highest stay, in their order, and of equal ones the ends") {
  constexpr std::size_t count = Series::most + 1;
  const auto thinned = [](const auto& y_of) {
    Series series;
    for (std::size_t i = 0; i < count; ++i) series.add(static_cast<double>(i), y_of(i));
    return series.points();
  };
  const double up[] = {1, 0, 3, 2}, down[] = {2, 3, 1, 0};
  const auto rising = thinned([&](std::size_t i) { return up[i % 4]; });
  const auto falling = thinned([&](std::size_t i) { return down[i % 4]; });
  const auto flat = thinned([](std::size_t) { return 5.0; });
  REQUIRE(rising.size() == 2 * (Series::most / 4) + 1);
  REQUIRE(falling.size() == rising.size());
  REQUIRE(flat.size() == rising.size());
  for (std::size_t group : {std::size_t{0}, std::size_t{1}, Series::most / 4 - 1}) {
    const auto at = static_cast<double>(4 * group);
    CHECK(rising[2 * group] == Point{at + 1, 0});
    CHECK(rising[2 * group + 1] == Point{at + 2, 3});
    CHECK(falling[2 * group] == Point{at + 1, 3});
    CHECK(falling[2 * group + 1] == Point{at + 3, 0});
    CHECK(flat[2 * group] == Point{at, 5});
    CHECK(flat[2 * group + 1] == Point{at + 3, 5});
  }
  CHECK(rising.back() == Point{static_cast<double>(Series::most), 1});
  CHECK_FALSE(Series().points() == flat);
}

TEST_CASE("series: what is no finite number is left out, whichever of the two it is") {
  const double infinite = std::numeric_limits<double>::infinity();
  Series series;
  series.add(infinite, 1);
  series.add(1, -infinite);
  CHECK(series.empty());
  series.add(1, 2);
  CHECK_FALSE(series.empty());
}

TEST_CASE("series: a mean reaches to both sides by the same, at its ends as well") {
  const std::vector<Point> points{{0, 1}, {2, 4}, {4, 7}, {7, 100}};
  CHECK(smoothed(points, 2) == std::vector<Point>{{0, 2.5}, {2, 4}, {4, 5.5}, {7, 100}});
  CHECK(smoothed(points, 1.5) == points);
}

}  // namespace series_test
