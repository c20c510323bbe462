#include "lora/nn/rotary.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

#include "lora/cpu/kernels.hpp"
#include "support/matrix.hpp"
#include "support/proof_kernels.hpp"

namespace rotary_test {

namespace {

using namespace lora;
using namespace lora::test;
using D = cpu::Device;

// With theta 256 and 16 columns pair i has the frequency 2^-i, and over 2 pi 64 positions it turns 64 / 2^i times: the
// pair with r rotations is log2(64 / r). What scaling does is then seen in closed form.
constexpr Index pairs = 8;
nn::RopeConfig powers_of_two(nn::RopeConfig::Scaling scaling) {
  nn::RopeConfig config;
  config.theta = 256;
  config.scaling = scaling;
  config.factor = 4;
  config.original_max_position_embeddings = 2 * std::numbers::pi * 64;
  return config;
}

/// Each frequency as a part of the unscaled one.
std::vector<double> parts_of(const nn::RopeConfig& config) {
  std::vector<double> parts;
  for (const float frequency : nn::inverse_frequencies(config, 2 * pairs))
    parts.push_back(std::ldexp(static_cast<double>(frequency), static_cast<int>(parts.size())));
  return parts;
}

void check_parts(const nn::RopeConfig& config, const std::vector<double>& expected) {
  const auto parts = parts_of(config);
  REQUIRE(parts.size() == expected.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    CAPTURE(i);
    CHECK(parts[i] == doctest::Approx(expected[i]).epsilon(1e-6));
  }
}

/// YaRN's frequencies where the ramp begins at `low` and ends at `high`: a quarter of the frequency from there on.
void check_ramp(const nn::RopeConfig& config, double low, double high) {
  std::vector<double> expected;
  for (Index i = 0; i < pairs; ++i) {
    const double at = static_cast<double>(i);
    const double ramp = at <= low ? 0 : at >= high ? 1 : (at - low) / (high - low);
    expected.push_back(1 - 0.75 * ramp);
  }
  check_parts(config, expected);
}

}  // namespace

TEST_CASE("rotary: yarn turns slow pairs more slowly along a ramp, whose ends are whole pairs unless told otherwise") {
  auto config = powers_of_two(nn::RopeConfig::Scaling::yarn);
  config.beta_fast = 64 / std::exp2(1.5);
  config.beta_slow = 64 / std::exp2(4.5);
  check_ramp(config, 1, 5);
  config.truncate = false;
  check_ramp(config, 1.5, 4.5);
  SUBCASE("the ends stay between the first pair and the last column") {
    config.beta_fast = 128;
    check_ramp(config, 0, 4.5);
    config.beta_slow = std::exp2(-20);
    check_ramp(config, 0, 15);
  }
  SUBCASE("a ramp without length is a step") {
    config.beta_slow = config.beta_fast;
    check_ramp(config, 1.5, 1.501);
  }
  SUBCASE("the defaults are those of the paper: 32 rotations and 1") {
    const nn::RopeConfig plain = powers_of_two(nn::RopeConfig::Scaling::yarn);
    CHECK((plain.beta_fast == 32 && plain.beta_slow == 1 && plain.truncate));
  }
}

TEST_CASE("rotary: llama3 keeps fast pairs, divides slow ones and mixes between") {
  auto config = powers_of_two(nn::RopeConfig::Scaling::llama3);
  config.low_freq_factor = 2;
  config.high_freq_factor = 24;
  const auto mixed = [](double rotations) {
    const double smooth = (rotations - 2) / 22;
    return (1 - smooth) / 4 + smooth;
  };
  check_parts(config, {1, 1, mixed(16), mixed(8), mixed(4), mixed(2), 0.25, 0.25});
}

TEST_CASE("rotary: linear scaling divides all, factors of a file replace every scaling") {
  auto config = powers_of_two(nn::RopeConfig::Scaling::linear);
  check_parts(config, std::vector<double>(pairs, 0.25));
  config.frequency_factors = {1, 2, 4, 8, 1, 2, 4, 8};
  check_parts(config, {1, 0.5, 0.25, 0.125, 1, 0.5, 0.25, 0.125});
  config.frequency_factors.pop_back();
  CHECK_THROWS_WITH_AS((nn::Rotary<D, float>(config, 2 * pairs)),
                       "[rotary] 7 frequency factors for heads of 16 columns", ShapeError);
  check_parts(powers_of_two(nn::RopeConfig::Scaling::none), std::vector<double>(pairs, 1.0));
}

TEST_CASE("rotary: longrope divides by the factors for short sequences, and refuses longer ones") {
  using Scaling = nn::RopeConfig::Scaling;
  auto config = powers_of_two(Scaling::longrope);
  config.short_factors = {1, 2, 4, 8, 1, 2, 4, 8};
  config.long_factors = std::vector<float>(pairs, 16);
  check_parts(config, {1, 0.5, 0.25, 0.125, 1, 0.5, 0.25, 0.125});
  config.original_max_position_embeddings = 300;
  CHECK(nn::rotary_magnitude(config) == doctest::Approx(std::sqrt(1 + std::log(4.0) / std::log(300.0))).epsilon(1e-15));
  config.factor = 1;
  CHECK(nn::rotary_magnitude(config) == 1);
  config.attention_factor = 1.25;
  CHECK(nn::rotary_magnitude(config) == 1.25);
  CHECK(nn::longest_rotation(config) == 300);
  D dev(1);
  nn::Rotary<D, float> rotary(config, 2 * pairs);
  rotary.reach(dev, 299);
  CHECK_THROWS_WITH_AS(rotary.reach(dev, 300),
                       "[rotary] a sequence of 301 tokens; beyond 300 the model's longrope scaling has other factors, "
                       "which are not supported; expected no more",
                       ConfigError);
  // The same factors for all lengths are no reason to stop.
  config.long_factors = config.short_factors;
  CHECK(nn::longest_rotation(config) == std::numeric_limits<Index>::max());
  CHECK(nn::longest_rotation(powers_of_two(Scaling::yarn)) == std::numeric_limits<Index>::max());
}

TEST_CASE("rotary: only yarn and longrope change the magnitude, by the factor unless the config says it") {
  using Scaling = nn::RopeConfig::Scaling;
  for (const auto scaling : {Scaling::none, Scaling::linear, Scaling::llama3})
    CHECK(nn::rotary_magnitude(powers_of_two(scaling)) == 1);
  auto config = powers_of_two(Scaling::yarn);
  const double grown = 0.1 * std::log(4.0) + 1;
  CHECK(nn::rotary_magnitude(config) == doctest::Approx(grown).epsilon(1e-15));
  config.mscale = 2;
  CHECK(nn::rotary_magnitude(config) == doctest::Approx(grown).epsilon(1e-15));  // one of the two says nothing
  config.mscale_all_dim = 0.5;
  CHECK(nn::rotary_magnitude(config) ==
        doctest::Approx((0.2 * std::log(4.0) + 1) / (0.05 * std::log(4.0) + 1)).epsilon(1e-15));
  config.factor = 0.5;
  CHECK(nn::rotary_magnitude(config) == 1);
  config.attention_factor = 1.25;
  CHECK(nn::rotary_magnitude(config) == 1.25);
}

// Positions on both sides of every place where the tables grow, each asked for when they reach the one before.
TEST_CASE("rotary: every position turns by its own angle, wherever the tables end") {
  constexpr Index width = 8, half = width / 2;
  D dev(1);
  nn::RopeConfig config;
  config.theta = 100;
  const auto frequencies = nn::inverse_frequencies(config, width);
  nn::Rotary<D, double> rotary(config, width);
  for (const std::int32_t position : {0, 1, 254, 255, 256, 257, 511, 512, 767, 768, 1023, 1024, 3, 2000}) {
    CAPTURE(position);
    rotary.reach(dev, position);
    const auto values = random_values<double>(width, 5, -1, 1);
    const Matrix<D, double> x(dev, 1, width, values);
    const Matrix<D, std::int32_t> positions(dev, 1, 1, std::vector<std::int32_t>{position});
    Matrix<D, double> y(dev, 1, width, 1), back(dev, 1, width, 2);
    rotary.forward(dev, x.in(), positions.in(), y.view());
    const auto turned = y.host();
    for (Index i = 0; i < half; ++i) {
      const auto a = static_cast<std::size_t>(i), b = static_cast<std::size_t>(i + half);
      const double angle = static_cast<double>(position) * static_cast<double>(frequencies[a]);
      CHECK(turned[a] == doctest::Approx(values[a] * std::cos(angle) - values[b] * std::sin(angle)).epsilon(1e-14));
      CHECK(turned[b] == doctest::Approx(values[b] * std::cos(angle) + values[a] * std::sin(angle)).epsilon(1e-14));
    }
    rotary.backward(dev, y.in(), positions.in(), back.view());
    for (std::size_t i = 0; i < values.size(); ++i) CHECK(back.host()[i] == doctest::Approx(values[i]).epsilon(1e-14));
  }
}

TEST_CASE("rotary: a long generation computes and uploads each row of the tables once, and moves them few times") {
  proof::Device dev(1);
  constexpr Index width = 8, last = 5000;
  nn::Rotary<proof::Device, float> rotary(nn::RopeConfig{}, width);
  for (Index position = 0; position <= last; ++position) rotary.reach(dev, position);
  const proof::Counts counts = dev.counts();
  CHECK(counts.allocations == 2 * 6);  // 256, 512, 1024, 2048, 4096, 8192
  CHECK(counts.bytes_in == 2 * 8192 * (width / 2) * sizeof(float));
  nn::Rotary<proof::Device, float> at_once(nn::RopeConfig{}, width);
  at_once.reach(dev, 100'000);
  CHECK(dev.counts().allocations == counts.allocations + 2);
}

}  // namespace rotary_test
