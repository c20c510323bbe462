#include "lora/core/shape.hpp"

#include <doctest/doctest.h>

namespace shape_test {

using namespace lora;

TEST_CASE("shape: extents, count, equality and text") {
  Shape shape{2, 3};
  CHECK(shape.rank() == 2);
  CHECK(shape.count() == 6);
  CHECK(to_string(shape) == "(2, 3)");
  shape.push_back(4);
  CHECK(shape == Shape{2, 3, 4});
  CHECK_FALSE(shape == Shape{2, 3});
  CHECK_FALSE(shape == Shape{2, 3, 5});
  CHECK(Shape().count() == 1);
  CHECK(to_string(Shape()) == "()");
  CHECK(Shape{5, 0}.count() == 0);
}

TEST_CASE("shape: a fifth extent is refused") {
  CHECK_THROWS_WITH_AS((Shape{1, 2, 3, 4, 5}), "[shape] 5 extents; at most 4 are supported", ShapeError);
  Shape shape{1, 2, 3, 4};
  CHECK_THROWS_AS(shape.push_back(5), ShapeError);
}

TEST_CASE("shape: four extents fit, in their order") {
  const Shape shape{2, 3, 4, 5};
  CHECK(shape.rank() == 4);
  for (int axis = 0; axis < 4; ++axis) CHECK(shape[axis] == axis + 2);
  CHECK(shape.count() == 120);
  CHECK(to_string(shape) == "(2, 3, 4, 5)");
  CHECK(to_string(Shape{-1}) == "(-1)");
  CHECK_FALSE(Shape{2, 3} == Shape{3, 2});
  CHECK_FALSE(Shape{2, 0} == Shape{2});
  Shape grown;
  grown.push_back(7);
  CHECK(grown == Shape{7});
  CHECK_THROWS_WITH_AS((Shape{1, 2, 3, 4}.push_back(5)), "[shape] more than 4 extents", ShapeError);
}

}  // namespace shape_test
