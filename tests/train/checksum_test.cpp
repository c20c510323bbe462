#include "lora/train/checksum.hpp"

#include <doctest/doctest.h>

#include <string>

namespace checksum_test {

using namespace lora::train;

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

}  // namespace checksum_test
