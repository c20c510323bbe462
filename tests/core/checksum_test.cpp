#include "lora/core/checksum.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace checksum_test {

using namespace lora;

TEST_CASE("checksum: the published values of XXH64") {
  CHECK(checksum_text(checksum(std::string_view(""))) == "ef46db3751d8e999");
  CHECK(checksum_text(checksum(std::string_view("a"))) == "d24ec4f1a98c6e5b");
  CHECK(checksum_text(checksum(std::string_view("abc"))) == "44bc2cf5ad770999");
  CHECK(checksum_text(checksum(std::string_view("Nobody inspects the spammish repetition"))) == "fbcea83c8a378bf1");
}

TEST_CASE("checksum: every bit of every length counts") {
  for (const std::size_t size : {1u, 3u, 4u, 7u, 8u, 31u, 32u, 33u, 64u, 77u}) {
    std::string text(size, 'x');
    const auto sum = checksum(text);
    CHECK(sum != checksum(text + 'x'));
    for (std::size_t i = 0; i < size; ++i)
      for (int bit = 0; bit < 8; ++bit) {
        text[i] = static_cast<char>(text[i] ^ (1 << bit));
        CHECK(checksum(text) != sum);
        text[i] = static_cast<char>(text[i] ^ (1 << bit));
      }
  }
}

TEST_CASE("checksum: of long strings it does not depend on the threads, and every piece counts") {
  std::vector<std::byte> longest(3'500'000, std::byte{7});
  const std::span<const std::byte> strings[] = {
      longest, {}, std::span(longest).first(1 << 20), std::span(longest).first(9)};
  const auto sums = checksums(strings, 1);
  REQUIRE(sums.size() == 4);
  for (const int threads : {0, 2, 5}) CHECK(checksums(strings, threads) == sums);
  CHECK(std::set<std::uint64_t>(sums.begin(), sums.end()).size() == 4);
  for (const std::size_t at : {std::size_t{0}, std::size_t{1} << 20, longest.size() - 1}) {
    longest[at] = std::byte{8};
    CHECK(checksums(strings, 2)[0] != sums[0]);
    longest[at] = std::byte{7};
  }
}

}  // namespace checksum_test
