#include "lora/train/value_text.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace value_text_test {

using namespace lora;
using namespace lora::train;

TEST_CASE("value texts: sizes in powers of 1000 and of 1024") {
  CHECK(parse_size("5GB") == 5'000'000'000);
  CHECK(parse_size("1.5MiB") == 1'572'864);
  for (const char* wrong : {"", "GB", "0GB", "-1GB", "5", "5 GB", "1e30GB"}) CHECK_FALSE(parse_size(wrong));
}

TEST_CASE("value texts: a day is one of the calendar") {
  for (const char* right : {"2024-07-26", "2024-02-29", "2000-02-29", "2023-12-31"}) CHECK(is_day(right));
  for (const char* wrong : {"", "today", "2024-02-30", "2023-02-29", "1900-02-29", "2024-13-01", "2024-00-10",
                            "2024-01-00", "2024-1-1", "24-01-01", "2024/01/01", "2024-01-01 ", "+024-01-01"}) {
    CAPTURE(wrong);
    CHECK_FALSE(is_day(wrong));
  }
}

TEST_CASE("value texts: lists are split at commas, without the spaces around") {
  CHECK(split_list(" a, b c ,,d") == std::vector<std::string>{"a", "b c", "d"});
  CHECK(split_list(",").empty());
}

}  // namespace value_text_test
