#include "lora/settings/value_text.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <utility>
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

TEST_CASE("value texts: every unit, and the largest size") {
  const std::pair<const char*, Index> units[] = {{"3KB", 3'000},  {"3MB", 3'000'000},  {"3GB", 3'000'000'000},
                                                 {"3KiB", 3'072}, {"3MiB", 3'145'728}, {"3GiB", 3'221'225'472}};
  for (const auto& unit : units) {
    CAPTURE(unit.first);
    CHECK(parse_size(unit.first) == unit.second);
  }
  CHECK(parse_size("0.0019KB") == 1);
  CHECK(parse_size("4294967295GiB") == 4'611'686'017'353'646'080);  // (2^32 - 1) 2^30
  for (const char* wrong : {"4294967296GiB", "5TB", "5B", "5gb", "nanGB", "infGB", "5GB ", " 5GB"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_size(wrong));
  }
}

TEST_CASE("value texts: a number is the whole text, and finite") {
  CHECK(parse_number<Index>("-12") == -12);
  CHECK(parse_number<double>("-1.5e3") == -1500.0);
  for (const char* none : {"", " 1", "1 ", "1x", "+1", "x"}) {
    CAPTURE(none);
    CHECK_FALSE(parse_number<Index>(none));
    CHECK_FALSE(parse_number<double>(none));
  }
  for (const char* none : {"inf", "-inf", "nan", "1e999"}) CHECK_FALSE(parse_number<double>(none));
  for (const char* none : {"1.5", "9223372036854775808"}) CHECK_FALSE(parse_number<Index>(none));
}

TEST_CASE("value texts: layers are one or a range, up to the highest") {
  const auto layers_of = [](std::string_view text) {
    std::vector<Index> layers = {7};
    const bool added = add_layers(layers, text);
    return added ? layers : std::vector<Index>{};
  };
  CHECK(layers_of("4") == std::vector<Index>{7, 4});
  CHECK(layers_of("4..6") == std::vector<Index>{7, 4, 5, 6});
  CHECK(layers_of("0..0") == std::vector<Index>{7, 0});
  CHECK(layers_of("99999..100000") == std::vector<Index>{7, 99'999, 100'000});
  CHECK(layers_of("100000") == std::vector<Index>{7, 100'000});
  for (const char* none : {"100001", "99999..100001", "-1", "-1..2", "3..2", "3...4", "3..4..5", "", ".."}) {
    CAPTURE(none);
    CHECK(layers_of(none).empty());
  }
}

}  // namespace value_text_test
