#include "lora/model/finite.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>

#include "lora/instantiate.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace finite_test {

using namespace lora;

TEST_CASE("finite: the number that is none, or the largest, is found at either end of a tensor") {
  const test::TempFolder folder;
  const test::RandomModel shape;
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  cpu::Device dev(1);
  const auto found = [&](bool at_the_end, double value) {
    auto tensors = test::random_tensors(shape);
    for (auto& tensor : tensors)
      if (tensor.name == name) (at_the_end ? tensor.values.back() : tensor.values.front()) = value;
    test::write_model(folder.path(), test::config_json(shape), tensors, shape.dtype);
    return model::extreme_number(dev, model::Source::open(folder.path()), nullptr);
  };
  for (const bool at_the_end : {false, true}) {
    CAPTURE(at_the_end);
    const auto none = found(at_the_end, std::numeric_limits<double>::quiet_NaN());
    CHECK(std::isnan(none.value));
    CHECK(none.tensor == name);
    const auto largest = found(at_the_end, -4096);
    CHECK(largest.value == -4096);
    CHECK(largest.tensor == name);
    CHECK(largest.finite());
  }
}

}  // namespace finite_test
