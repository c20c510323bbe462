#include "lora/settings/device_name.hpp"

#include <doctest/doctest.h>

namespace device_name_test {

using namespace lora::settings;
using Kind = DeviceName::Kind;

TEST_CASE("device name: the processors, any device, and NPUs by number") {
  for (const char* text : {"auto", "cpu", "ascend", "ascend:2"}) CHECK(parse_device(text).has_value());
  for (const char* text : {"auto", "cpu"}) CHECK(parse_device(text)->ids.empty());
  CHECK(parse_device("auto")->kind == Kind::automatic);
  CHECK(parse_device("cpu")->kind == Kind::cpu);
  CHECK(parse_device("ascend")->kind == Kind::ascend);
  CHECK(parse_device("ascend")->ids.empty());
  CHECK(parse_device("ascend:2")->ids == std::vector<int>{2});
  CHECK(parse_device("ascend:0,1,2,13")->ids == std::vector<int>{0, 1, 2, 13});
  CHECK(parse_device("ascend:4095")->ids == std::vector<int>{4095});
}

TEST_CASE("device name: anything else is none") {
  for (const char* text : {"",          "gpu",         "cuda:0",     "CPU",         "cpu:0",
                           "auto:1",    "ascend:",     "ascend:,1",  "ascend:1,",   "ascend:1,,2",
                           "ascend:-1", "ascend:+1",   "ascend: 1",  "ascend:1 ",   "ascend:a",
                           "ascend:1a", "ascend1",     "ascend:1,1", "ascend:4096", "ascend:99999999999",
                           "ascend,1",  "ascend910b3", "ascend:-0",  "ascend:1,-2", "ascend:0,1,0"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_device(text).has_value());
  }
}

}  // namespace device_name_test
