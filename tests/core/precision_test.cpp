#include "lora/core/precision.hpp"

#include <doctest/doctest.h>

#include <string_view>

namespace precision_test {

using namespace lora;

TEST_CASE("precision: each has a name and a stored type, and is found by its name") {
  struct Row {
    Precision precision;
    std::string_view name;
    DType dtype;
  };
  const Row rows[] = {{Precision::float32, "float32", DType::f32},
                      {Precision::bfloat16, "bfloat16", DType::bf16},
                      {Precision::float16, "float16", DType::f16}};
  for (const Row& row : rows) {
    CHECK(name_of(row.precision) == row.name);
    CHECK(precision_named(row.name) == row.precision);
    CHECK(stored_dtype(row.precision) == row.dtype);
  }
  for (const std::string_view name : {"auto", "", "float", "float64", "bfloat16 "}) CHECK_FALSE(precision_named(name));
  CHECK(precision_of<float>() == Precision::float32);
  CHECK(precision_of<bf16>() == Precision::bfloat16);
  CHECK(precision_of<f16>() == Precision::float16);
}

}  // namespace precision_test
