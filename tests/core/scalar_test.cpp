#include "lora/core/scalar.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

namespace scalar_test {

namespace {

using namespace lora;

/// The nearest of two neighbors, ties to the one with an even last bit; infinite values count as the next power of
/// two.
template <class Half>
void check_between(std::uint16_t low_bits, double beyond) {
  Half low, high;
  low.bits = low_bits;
  high.bits = static_cast<std::uint16_t>(low_bits + 1);
  const double a = static_cast<float>(low);
  const double b = std::isinf(static_cast<float>(high)) ? beyond : static_cast<double>(static_cast<float>(high));
  const auto middle = static_cast<float>((a + b) / 2);
  REQUIRE(static_cast<double>(middle) == (a + b) / 2);
  const auto even = static_cast<std::uint16_t>(low_bits % 2 == 0 ? low_bits : low_bits + 1);
  const auto negative = [](std::uint16_t bits) { return static_cast<std::uint16_t>(bits | 0x8000u); };
  bool right = Half(middle).bits == even && Half(-middle).bits == negative(even);
  right = right && Half(std::nextafter(middle, 0.0f)).bits == low.bits;
  right = right && Half(std::nextafter(middle, INFINITY)).bits == high.bits;
  right = right && Half(-std::nextafter(middle, INFINITY)).bits == negative(high.bits);
  if (!right) FAIL_CHECK("wrong rounding above " << a << ", bits " << low_bits);
}

template <class Half>
void check_round_trip() {
  for (std::uint32_t bits = 0; bits <= 0xFFFFu; ++bits) {
    Half half;
    half.bits = static_cast<std::uint16_t>(bits);
    const auto value = static_cast<float>(half);
    if (std::isnan(value)) {
      if (!std::isnan(static_cast<float>(Half(value)))) FAIL_CHECK("NaN " << bits << " became a number");
    } else if (Half(value).bits != half.bits) {
      FAIL_CHECK(bits << " came back as " << Half(value).bits);
    }
  }
}

}  // namespace

TEST_CASE("scalar: every f16 value is what IEEE 754 says") {
  for (std::uint32_t bits = 0; bits <= 0xFFFFu; ++bits) {
    f16 half;
    half.bits = static_cast<std::uint16_t>(bits);
    const int exponent = static_cast<int>(bits >> 10 & 0x1F);
    const double mantissa = bits & 0x3FF;
    const double sign = bits & 0x8000u ? -1 : 1;
    const auto value = static_cast<float>(half);
    if (exponent == 0x1F) {
      if (mantissa == 0 ? static_cast<double>(value) != sign * INFINITY : !std::isnan(value))
        FAIL_CHECK("bits " << bits);
    } else {
      const double expected =
          sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
      if (static_cast<double>(value) != expected || std::signbit(value) != (sign < 0)) FAIL_CHECK("bits " << bits);
    }
  }
}

TEST_CASE("scalar: every bf16 and f16 survives the way to float and back") {
  check_round_trip<bf16>();
  check_round_trip<f16>();
}

TEST_CASE("scalar: bf16 rounds to nearest, ties to even, between all neighbors") {
  for (std::uint16_t bits = 0; bits < 0x7F80u; ++bits) check_between<bf16>(bits, 0x1p128);
}

TEST_CASE("scalar: f16 rounds to nearest, ties to even, between all neighbors") {
  for (std::uint16_t bits = 0; bits < 0x7C00u; ++bits) check_between<f16>(bits, 65536);
}

TEST_CASE("scalar: what is too large becomes infinite, what is no number stays none") {
  CHECK(std::isinf(static_cast<float>(bf16(std::numeric_limits<float>::max()))));
  CHECK(std::isinf(static_cast<float>(f16(65520.0f))));
  CHECK(static_cast<float>(f16(65519.99f)) == 65504.0f);
  CHECK(std::isinf(static_cast<float>(f16(INFINITY))));
  CHECK(static_cast<float>(bf16(-INFINITY)) == -INFINITY);
  for (const std::uint32_t bits : {0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu, 0xFF800001u}) {
    CHECK(std::isnan(static_cast<float>(bf16(std::bit_cast<float>(bits)))));
    CHECK(std::isnan(static_cast<float>(f16(std::bit_cast<float>(bits)))));
  }
  CHECK(f16(0x1p-25f).bits == 0);  // half of the smallest: a tie, to even
  CHECK(f16(std::nextafter(0x1p-25f, 1.0f)).bits == 1);
}

TEST_CASE("scalar: sizes and names of stored types") {
  CHECK(bytes_of(DType::f32, 5) == 20);
  CHECK(bytes_of(DType::bf16, 5) == 10);
  CHECK(bytes_of(DType::f64, 5) == 40);
  CHECK(bytes_of(DType::q8_0, 64) == 68);
  CHECK(bytes_of(DType::q4_0, 64) == 36);
  CHECK(bytes_of(DType::q4_1, 64) == 40);
  CHECK(bytes_of(DType::q5_0, 64) == 44);
  CHECK(bytes_of(DType::q5_1, 64) == 48);
  CHECK(bytes_of(DType::q4_k, 512) == 288);
  CHECK(bytes_of(DType::q5_k, 512) == 352);
  CHECK(bytes_of(DType::q6_k, 512) == 420);
  CHECK(bytes_of(DType::u8, 3) == 3);
  CHECK(name_of(DType::f32) == "F32");
  CHECK(name_of(DType::q4_1) == "Q4_1");
  CHECK(name_of(DType::q6_k) == "Q6_K");
  CHECK(name_of(DType::u8) == "U8");
  CHECK(stores<bf16>(DType::bf16));
  CHECK_FALSE(stores<bf16>(DType::f16));
  CHECK_FALSE(stores<std::complex<double>>(DType::f64));
  static_assert(std::is_same_v<Accum<const bf16>, float> && std::is_same_v<Accum<double>, double>);
}

TEST_CASE("scalar: every stored type has the name, block and bytes of its format") {
  struct Row {
    DType dtype;
    std::string_view name;
    Index elements, bytes;
  };
  const Row rows[] = {{DType::f32, "F32", 1, 4},       {DType::bf16, "BF16", 1, 2},     {DType::f16, "F16", 1, 2},
                      {DType::f64, "F64", 1, 8},       {DType::q8_0, "Q8_0", 32, 34},   {DType::q4_0, "Q4_0", 32, 18},
                      {DType::q4_1, "Q4_1", 32, 20},   {DType::q5_0, "Q5_0", 32, 22},   {DType::q5_1, "Q5_1", 32, 24},
                      {DType::q4_k, "Q4_K", 256, 144}, {DType::q5_k, "Q5_K", 256, 176}, {DType::q6_k, "Q6_K", 256, 210},
                      {DType::i64, "I64", 1, 8},       {DType::i32, "I32", 1, 4},       {DType::i16, "I16", 1, 2},
                      {DType::i8, "I8", 1, 1},         {DType::u8, "U8", 1, 1}};
  for (const Row& row : rows) {
    CAPTURE(row.name);
    CHECK(name_of(row.dtype) == row.name);
    CHECK(block_elements(row.dtype) == row.elements);
    CHECK(block_bytes(row.dtype) == row.bytes);
    CHECK(bytes_of(row.dtype, 3 * row.elements) == 3 * row.bytes);
    CHECK(bytes_of(row.dtype, 0) == 0);
  }
  CHECK(stores<float>(DType::f32));
  CHECK(stores<const double>(DType::f64));
  CHECK(stores<f16>(DType::f16));
  CHECK_FALSE(stores<f16>(DType::bf16));
  CHECK_FALSE(stores<float>(DType::q8_0));
  CHECK(narrowed<bf16>(1.00390625f).bits == 0x3F80u);
  CHECK(narrowed<double>(0.1) == 0.1);
}

TEST_CASE("scalar: a NaN stays quiet, with its sign and payload in bf16") {
  const auto bits_of = [](std::uint32_t bits) { return bf16(std::bit_cast<float>(bits)).bits; };
  CHECK(bits_of(0x7F800001u) == 0x7FC0u);
  CHECK(bits_of(0xFF800001u) == 0xFFC0u);
  CHECK(bits_of(0x7FA10000u) == 0x7FE1u);
  CHECK(bits_of(0x7F800000u) == 0x7F80u);
  CHECK(f16(std::bit_cast<float>(0xFF800001u)).bits == 0xFE00u);
}

}  // namespace scalar_test
