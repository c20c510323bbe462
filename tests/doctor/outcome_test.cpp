#include "lora/doctor/outcome.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "support/message_of.hpp"

namespace outcome_test {

using namespace lora;
using namespace lora::doctor;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();

/// Of bfloat16, with a bound of 2 roundings.
Output output_of(std::vector<double> values) {
  return {.name = "y", .values = std::move(values), .roundoff = 0x1p-8, .bound = 2, .overflow = 1000};
}

Difference difference(std::vector<double> given, const std::vector<double>& expected) {
  return compare(output_of(std::move(given)), expected);
}

}  // namespace

TEST_CASE("outcome: an error is told in roundings of the largest number that was expected") {
  const Difference found = difference({1, -4, 0.5}, {1, -4, 0.5 + 4 * 0x1p-8});
  CHECK(found.error == 0x1p-8);
  CHECK(found.units == 1);
  CHECK(found.at == 2);
  CHECK(found.given == 0.5);
  CHECK(found.expected == 0.5 + 4 * 0x1p-8);
  CHECK(found.within);
  CHECK(difference({1, 2}, {1, 2}).units == 0);
  CHECK(difference({0, 0}, {0, 0}).within);
  CHECK_FALSE(difference({0, 1}, {0, 0}).within);
}

TEST_CASE("outcome: what is farther than the bound is too far, and at the bound it is not") {
  CHECK(difference({2 + 4 * 0x1p-8}, {2}).within);
  CHECK_FALSE(difference({2 + 4.125 * 0x1p-8}, {2}).within);
  CHECK_FALSE(difference({2 - 4.125 * 0x1p-8, 1}, {2, 1}).within);
}

TEST_CASE("outcome: what the type can't hold is infinite, NaN is NaN, and everything else is finite") {
  CHECK(difference({infinity, -infinity, nan, 1}, {1e4, -1000, nan, 1}).within);
  CHECK(difference({infinity, 1}, {infinity, 1}).within);
  for (const double wrong : {999.0, -infinity, nan}) {
    const Difference found = difference({1, wrong}, {1, 1e4});
    CHECK_FALSE(found.within);
    CHECK(found.units == infinity);
    CHECK(found.at == 1);
  }
  CHECK_FALSE(difference({nan, 1}, {1, 1}).within);
  CHECK_FALSE(difference({1, 1}, {nan, 1}).within);
  CHECK_FALSE(difference({1, infinity}, {1, 999}).within);
  CHECK(difference({infinity, -infinity}, {1000, -1000}).within);  // where the type's end is
  CHECK_FALSE(difference({999, 1}, {1000, 1}).within);
  // Infinite numbers don't make the others' errors small.
  CHECK_FALSE(difference({infinity, 1.1}, {1e9, 1}).within);
}

TEST_CASE("outcome: of equal errors the first is told, and of none the first number") {
  const Difference two = difference({1, 2, 4.5, 3.5}, {1, 2, 4, 4});
  CHECK(two.at == 2);
  CHECK(two.given == 4.5);
  CHECK(two.expected == 4);
  CHECK(two.error == 0.125);
  CHECK(two.units == 0.125 / 0x1p-8);
  const Difference none = difference({3, 1}, {3, 1});
  CHECK(none.at == 0);
  CHECK(none.given == 3);
  CHECK(none.expected == 3);
  CHECK(none.error == 0);
  CHECK(difference({0.25, 0}, {0, 0}).error == 0.25);  // where nothing but 0 was expected, the number itself
}

TEST_CASE("outcome: outputs of another length are no outputs of this kernel") {
  CHECK(test::message_of<ShapeError>([] {
          (void)difference({1, 2}, {1});
        }) == "[check] y has 2 numbers but 1 were expected");
}

TEST_CASE("outcome: the same numbers again, with NaN among them") {
  CHECK(same({output_of({1, nan})}, {output_of({1, nan})}));
  CHECK_FALSE(same({output_of({1, 2})}, {output_of({1, 2.5})}));
  CHECK_FALSE(same({output_of({1})}, {output_of({nan})}));
  CHECK_FALSE(same({output_of({1})}, {output_of({1}), output_of({1})}));
  CHECK_FALSE(same({output_of({1}), output_of({1})}, {output_of({1})}));
  CHECK_FALSE(same({output_of({1}), output_of({2})}, {output_of({1}), output_of({3})}));
  CHECK_FALSE(same({output_of({1, 2})}, {output_of({1})}));
  CHECK_FALSE(same({output_of({nan})}, {output_of({1})}));
}

TEST_CASE("outcome: numbers of a type, their roundings and their end") {
  CHECK(rounded(1 + 0x1p-7, Precision::bfloat16) == 1 + 0x1p-7);
  CHECK(rounded(1 + 0x1p-8, Precision::bfloat16) == 1);
  CHECK(rounded(1 + 3 * 0x1p-11, Precision::float16) == 1 + 0x1p-9);
  CHECK(rounded(1 + 0x1p-25, Precision::float32) == 1);
  for (const Precision precision : {Precision::float32, Precision::bfloat16, Precision::float16}) {
    CHECK(rounded(1 + 2.01 * roundoff(precision), precision) == 1 + 2 * roundoff(precision));
    CHECK(rounded(1 + 0.99 * roundoff(precision), precision) == 1);
    const double end = overflow(precision);
    CHECK(std::isfinite(rounded(end * (1 - roundoff(precision) / 4), precision)));
    if (precision != Precision::float32) CHECK(std::isinf(rounded(end, precision)));
  }
  // Halfway from the largest number to the power of two behind it.
  CHECK(overflow(Precision::float32) == 0x1p128 - 0x1p103);
  CHECK(overflow(Precision::bfloat16) == 0x1p128 - 0x1p119);
  CHECK(overflow(Precision::float16) == 0x1p16 - 0x1p4);
}

}  // namespace outcome_test
