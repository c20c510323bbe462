#include "lora/run/base_checksum.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

namespace base_checksum_test {

using namespace lora::run;

TEST_CASE("base checksum: of long strings it does not depend on the threads, and every piece counts") {
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

}  // namespace base_checksum_test
