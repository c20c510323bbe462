#include "lora/model/finite.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "lora/instantiate.hpp"
#include "support/message_of.hpp"
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

TEST_CASE("finite: a model to train is refused for one number of its tensors, of whatever type and at either end") {
  cpu::Device dev(1);
  const test::RandomModel shape;
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const bool at_the_end : {false, true}) {
      for (const double value :
           {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity(), 2.0}) {
        CAPTURE(dtype);
        CAPTURE(at_the_end);
        CAPTURE(value);
        const test::TempFolder folder;
        auto tensors = test::random_tensors(shape);
        for (auto& tensor : tensors)
          if (tensor.name == name) (at_the_end ? tensor.values.back() : tensor.values.front()) = value;
        test::write_model(folder.path(), test::config_json(shape), tensors, dtype);
        const auto source = model::Source::open(folder.path());
        const auto message = test::message_of<NonFiniteError>([&] { model::expect_finite(dev, source); });
        CHECK(test::holds(message, "the tensor " + name) == !std::isfinite(value));
      }
    }
  }
}

TEST_CASE("finite: of several tensors the first that is spoilt is named, and integers are passed over") {
  const test::TempFolder folder;
  const test::RandomModel shape;
  auto tensors = test::random_tensors(shape);
  for (auto& tensor : tensors) {
    if (tensor.name == "model.layers.0.mlp.up_proj.weight")
      tensor.values.back() = std::numeric_limits<double>::infinity();
    if (tensor.name == "model.layers.1.mlp.up_proj.weight")
      tensor.values.front() = std::numeric_limits<double>::quiet_NaN();
  }
  test::write_model(folder.path(), test::config_json(shape), tensors, shape.dtype);
  cpu::Device dev(1);
  const auto source = model::Source::open(folder.path());
  std::string first;
  for (const auto& tensor : source.tensors())
    if (first.empty() && tensor.name.ends_with("mlp.up_proj.weight")) first = tensor.name;
  CHECK(model::extreme_number(dev, source, nullptr).tensor == first);
}

TEST_CASE("finite: every row of a quantised tensor is looked at") {
  constexpr Index rows = 5, cols = 64;
  const auto row_bytes = static_cast<std::size_t>(bytes_of(DType::q8_0, cols));
  std::vector<std::byte> bytes(rows * row_bytes);
  const std::size_t block_size = row_bytes / 2;
  for (std::size_t block = 0; block < bytes.size() / block_size; ++block) {
    const std::uint16_t scale = block == 7 ? 0x4400 : 0x3C00;  // as f16: 4, else 1
    std::memcpy(&bytes[block * block_size], &scale, sizeof scale);
    bytes[block * block_size + 2] = std::byte{static_cast<unsigned char>(block)};
  }
  cpu::Device dev(1);
  std::vector<double> values;
  model::detail::for_each_value(dev, {"t", DType::q8_0, Shape{rows, cols}, bytes, nullptr},
                                [&](double value) { values.push_back(value); });
  REQUIRE(values.size() == rows * cols);
  for (std::size_t i = 0; i < values.size(); ++i) {
    CAPTURE(i);
    const auto block = static_cast<double>(i / 32);
    CHECK(values[i] == (i % 32 != 0 ? 0 : block == 7 ? 28 : block));
  }
}

}  // namespace finite_test
