// Numbers as they are stored.

#include "lora/model/weights/encoded.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "support/message_of.hpp"

namespace encoded_test {

using namespace lora;

namespace {

struct Q8 {
  std::uint16_t scale;
  std::vector<int> quanta;
};
Q8 block_of(const std::vector<float>& values) {
  const auto bytes = model::encoded(values, DType::q8_0, "t");
  REQUIRE(bytes.size() == 34);
  Q8 block{};
  std::memcpy(&block.scale, bytes.data(), 2);
  for (std::size_t i = 2; i < bytes.size(); ++i) block.quanta.push_back(static_cast<signed char>(bytes[i]));
  return block;
}

std::string refused(std::vector<float> values, DType dtype) {
  return test::message_of<NonFiniteError>([&] { model::encoded(values, dtype, "layer.weight"); });
}

}  // namespace

TEST_CASE("encoded: Q8_0 takes the largest of 32 values for 127 and rounds halves away from zero") {
  std::vector<float> values(32, 0.0f);
  values[0] = -127;
  values[1] = 0.5f;
  values[2] = -1.5f;
  values[3] = 2.4f;
  values[31] = 126.5f;
  const Q8 block = block_of(values);
  CHECK(block.scale == f16(1.0f).bits);
  CHECK(block.quanta[0] == -127);
  CHECK(block.quanta[1] == 1);
  CHECK(block.quanta[2] == -2);
  CHECK(block.quanta[3] == 2);
  CHECK(block.quanta[31] == 127);
  const Q8 zero = block_of(std::vector<float>(32, 0.0f));
  CHECK(zero.scale == 0);
  CHECK(zero.quanta == std::vector<int>(32, 0));
  // The quanta are by the exact scale, not by the one that is stored.
  values.assign(32, 0.0f);
  values[0] = 0.3f;
  values[1] = 0.1f;
  CHECK(block_of(values).quanta[1] == static_cast<int>(std::round(0.1f * (1.0f / (0.3f / 127.0f)))));
  CHECK(block_of(values).scale == f16(0.3f / 127.0f).bits);
}

TEST_CASE("encoded: what would not be finite is refused with its tensor") {
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(refused({1e5f}, DType::f16) ==
        "the merged tensor layer.weight would hold inf as F16 (1e+05 before rounding); expected finite numbers");
  std::vector<float> values(32, 0.0f);
  values[7] = infinity;
  CHECK(test::holds(refused(values, DType::q8_0), "would hold inf as Q8_0"));
  values[7] = std::numeric_limits<float>::quiet_NaN();
  CHECK(test::holds(refused(values, DType::q8_0), "would hold nan as Q8_0"));
  values[7] = -1e7f;  // 1e7 / 127 is too large a scale
  CHECK(refused(values, DType::q8_0) ==
        "the merged tensor layer.weight would hold inf as Q8_0 (1e+07 before rounding); expected finite numbers");
  CHECK(refused({1, -3.4e38f}, DType::bf16) ==
        "the merged tensor layer.weight would hold -inf as BF16 (-3.4e+38 before rounding); expected finite numbers");
  CHECK(test::holds(refused({1, infinity}, DType::f32), "would hold inf as F32 (inf before rounding)"));
  CHECK(test::message_of([] { model::encoded(std::vector<float>(32), DType::q4_0, "layer.weight"); }) ==
        "the tensor layer.weight can't be written as Q4_0");
}

}  // namespace encoded_test
