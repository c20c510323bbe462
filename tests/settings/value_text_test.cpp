#include "lora/settings/value_text.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace value_text_test {

using namespace lora;
using namespace lora::settings;

TEST_CASE("value texts: sizes in powers of 1000 and of 1024") {
  CHECK(parse_size("5GB") == 5'000'000'000);
  CHECK(parse_size("1.5MiB") == 1'572'864);
  for (const char* wrong : {"", "GB", "0GB", "-1GB", "5", "5 GB", "1e30GB"}) CHECK_FALSE(parse_size(wrong));
}

TEST_CASE("value texts: lists are split at commas, without the spaces around") {
  CHECK(split_list(" a, b c ,,d") == std::vector<std::string>{"a", "b c", "d"});
  CHECK(split_list(",").empty());
}

}  // namespace value_text_test
