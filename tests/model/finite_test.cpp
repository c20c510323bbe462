#include "lora/model/decoder/finite.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
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

TEST_CASE("finite: of several tensors the first that is spoiled is named, and integers are passed over") {
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

TEST_CASE("finite: every row of a quantized tensor is looked at") {
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

TEST_CASE("finite: what is found is told with its tensor and file, of a model and of its adapter") {
  const test::TempFolder folder;
  const test::RandomModel shape;
  test::write_random_model(folder / "model", shape);
  const auto source = model::Source::open(folder / "model");
  io::create_folders(folder / "adapter");
  const model::AdapterConfig config;
  io::write_json(folder / "adapter" / "adapter_config.json", model::to_json(config));
  cpu::Device dev(1);
  const auto found = [&](const std::vector<float>& values) {
    io::SafetensorsWriter writer(folder / "adapter" / "adapter_model.safetensors",
                                 {{"a", DType::f32, Shape{static_cast<Index>(values.size())}}});
    writer.add("a", std::as_bytes(std::span(values)));
    writer.commit();
    const auto files = model::open_adapter(folder / "adapter");
    return model::describe(model::extreme_number(dev, source, &files));
  };
  const std::string file = (folder / "adapter" / "adapter_model.safetensors").native();
  constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(found({1, -400, 3}) == "no weight is NaN or infinite, but the largest is -400, in the tensor a of " + file);
  CHECK(found({1, infinity, 3}) == "the tensor a of " + file + " holds inf");
  CHECK(found({1, infinity, nan, -infinity}) == "the tensor a of " + file + " holds nan");
  const std::string own = model::describe(model::extreme_number(dev, source, nullptr));
  CHECK(test::holds(own, "no weight is NaN or infinite, but the largest is 1."));  // of a norm
  CHECK(test::holds(own, ", in the tensor model."));
  CHECK(test::holds(own, " of " + (folder / "model" / "model.safetensors").native()));
}

TEST_CASE("finite: of numbers the first that is the largest is kept, a NaN above all") {
  model::ExtremeNumber extreme;
  CHECK(extreme.value == 0);
  CHECK(extreme.finite());
  const auto see = [&](double value, const char* name) {
    extreme.see(value, name, std::string("file of ") + name);
    return extreme.tensor;
  };
  CHECK(see(0, "a").empty());
  CHECK(see(-2, "b") == "b");
  CHECK(see(2, "c") == "b");
  CHECK(see(3, "d") == "d");
  CHECK(extreme.file == "file of d");
  CHECK(see(std::numeric_limits<double>::quiet_NaN(), "e") == "e");
  CHECK(see(std::numeric_limits<double>::infinity(), "f") == "e");
  CHECK(see(std::numeric_limits<double>::quiet_NaN(), "g") == "e");
  CHECK_FALSE(extreme.finite());
}

TEST_CASE("finite: a model to train is told what its tensor holds, and one of random weights has nothing to read") {
  cpu::Device dev(1);
  const test::TempFolder folder;
  const test::RandomModel shape;
  auto tensors = test::random_tensors(shape);
  tensors.front().values[3] = -1e39;  // which float32 does not hold
  test::write_model(folder.path(), test::config_json(shape), tensors, DType::f64);
  const auto source = model::Source::open(folder.path());
  CHECK(test::message_of<NonFiniteError>([&] { model::expect_finite(dev, source); }) ==
        concat("the tensor model.embed_tokens.weight of ", (folder / "model.safetensors").native(),
               " holds -inf; a model to train holds finite numbers"));
  CHECK_NOTHROW(model::expect_finite(dev, model::Source::initial(folder.path(), test::config_json(shape), 1)));
}

TEST_CASE("finite: numbers of every type are looked at by the bits of their exponents") {
  using model::detail::any_non_finite;
  const auto bytes = [](std::vector<std::uint16_t> words) {
    std::vector<std::byte> result(2 * words.size());
    std::memcpy(result.data(), words.data(), result.size());
    return result;
  };
  CHECK_FALSE(any_non_finite<std::uint16_t>({}, 0x7F80u));
  CHECK_FALSE(any_non_finite<std::uint16_t>(bytes({0x7F7F, 0xFF7F}), 0x7F80u));
  CHECK(any_non_finite<std::uint16_t>(bytes({0x7F80}), 0x7F80u));
  CHECK(any_non_finite<std::uint16_t>(bytes({0, 0xFFC0}), 0x7F80u));
  CHECK_FALSE(any_non_finite<std::uint16_t>(bytes({0x7BFF}), 0x7C00u));
  CHECK(any_non_finite<std::uint16_t>(bytes({0, 0, 0x7C01}), 0x7C00u));
}

TEST_CASE("finite: tensors of integers, of whatever width, are passed over") {
  const test::TempFolder folder;
  io::write_json(folder / "config.json", test::config_json(test::RandomModel{}));
  std::vector<io::TensorDeclaration> declarations{{"w", DType::f32, Shape{2}}};
  for (const DType dtype : {DType::i64, DType::i32, DType::i16, DType::i8, DType::u8})
    declarations.push_back({std::string(name_of(dtype)), dtype, Shape{3}});
  io::SafetensorsWriter writer(folder / "model.safetensors", declarations);
  for (const auto& one : declarations) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(bytes_of(one.dtype, one.shape.count())), std::byte{0x7F});
    const float numbers[] = {1, -3};
    if (one.dtype == DType::f32) std::memcpy(bytes.data(), numbers, sizeof numbers);
    writer.add(one.name, bytes);
  }
  writer.commit();
  cpu::Device dev(1);
  const auto extreme = model::extreme_number(dev, model::Source::open(folder.path()), nullptr);
  CHECK(extreme.tensor == "w");
  CHECK(extreme.value == -3);
}

}  // namespace finite_test
