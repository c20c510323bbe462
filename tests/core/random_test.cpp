#include "lora/core/random.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <set>
#include <vector>

namespace random_test {

using namespace lora;

TEST_CASE("random: philox gives the known answers of its authors") {
  // kat_vectors of Random123, philox4x32-10: counter, key, result.
  using Words = std::array<std::uint32_t, 4>;
  CHECK(philox({0, 0, 0, 0}, 0) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffffu) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822u) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("random: a sequence is the blocks of its counter") {
  Random random(99);
  for (std::uint32_t block = 0; block < 3; ++block) {
    const auto words = philox({block, 0, 0, 0}, 99);
    for (const std::uint32_t word : words) CHECK(random.next() == word);
  }
}

TEST_CASE("random: uniform numbers lie in [0, 1) and fill it evenly") {
  Random random(1);
  constexpr int draws = 100000, bins = 20;
  std::array<int, bins> counts{};
  for (int i = 0; i < draws; ++i) {
    const float value = random.uniform();
    REQUIRE(value >= 0.0f);
    REQUIRE(value < 1.0f);
    ++counts[static_cast<std::size_t>(value * bins)];
  }
  const double mean = double{draws} / bins;
  for (const int count : counts) CHECK(std::fabs(count - mean) < 6 * std::sqrt(mean));
}

TEST_CASE("random: below reaches every value, each as often") {
  Random random(2);
  std::array<int, 7> counts{};
  for (int i = 0; i < 70000; ++i) {
    const auto value = random.below(7);
    REQUIRE(value < 7);
    ++counts[value];
  }
  for (const int count : counts) CHECK(std::abs(count - 10000) < 6 * 100);
  CHECK(random.below(1) == 0);
  // The top 32 bits of a product alone would give every third value of this range twice as often.
  int thirds = 0;
  for (int i = 0; i < 30000; ++i) thirds += random.below(0xC0000000u) % 3 == 0;
  CHECK(std::abs(thirds - 10000) < 6 * 82);
}

TEST_CASE("random: keys of neighboring words are unrelated") {
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    for (int a = 0; a < 10; ++a) {
      keys.insert(mix_key(seed, a));
      for (int b = 0; b < 10; ++b) keys.insert(mix_key(seed, a, b));
    }
  CHECK(keys.size() == 10 * 10 * 11);
  // Half of all bits change with one bit of the seed: a binomial of 64 · 64 bits around 2048, deviation 32.
  int changed = 0;
  for (int bit = 0; bit < 64; ++bit)
    changed += std::popcount(mix_key(12345, 6) ^ mix_key(12345u ^ (std::uint64_t{1} << bit), 6));
  CHECK(std::abs(changed - 2048) < 6 * 32);
  static_assert(mix_key(1, 2) != mix_key(2, 1));
}

// Runs of earlier versions go on with these numbers.
TEST_CASE("random: keys, uniform numbers and numbers below a bound stay what they were") {
  CHECK(mix_key(0) == 0xE220A8397B1DCDAFu);  // the first number of SplitMix64 with seed 0
  CHECK(mix_key(1, 2) == 0x5F92D32601E7BCF1u);
  CHECK(mix_key(42, 7, -1) == 0xC038BDF60C18FA59u);
  Random words(7), uniform(7), below(7);
  for (int i = 0; i < 9; ++i) {
    const std::uint32_t word = words.next();
    CHECK(uniform.uniform() == static_cast<float>(word / 256) / 16777216.0f);
    CHECK(below.below(1000) == static_cast<std::uint32_t>(std::uint64_t{word} * 1000 / 4294967296u));
  }
}

TEST_CASE("random: a number below a bound is drawn again where its product is among the surplus") {
  // Of the bound 2^31 + 1 the lower halves of products under 2^31 - 1 are the surplus.
  constexpr std::uint32_t bound = 0x80000001u, threshold = 0x7FFFFFFFu;
  Random words(3), below(3);
  int drawn = 0;
  for (int i = 0; i < 50; ++i) {
    std::uint64_t product = 0;
    do {
      product = std::uint64_t{words.next()} * bound;
      ++drawn;
    } while ((product & 0xFFFFFFFFu) < threshold);
    CHECK(below.below(bound) == product >> 32);
  }
  CHECK(drawn > 70);
}

}  // namespace random_test
