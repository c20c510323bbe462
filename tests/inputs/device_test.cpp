#include "lora/inputs/device.hpp"

#include <doctest/doctest.h>

#include "support/environment.hpp"

namespace device_test {

using namespace lora;

TEST_CASE("device: of several processes that a launcher has started none computes alone, on the processors either") {
  settings::Config config;
  config.device = "cpu";
  config.threads = 1;
  const auto threads = [&] { return inputs::with_device(config, [](auto& dev) { return dev.threads(); }); };
  CHECK(threads() == 1);
  const test::Environment size("WORLD_SIZE", "2");
  CHECK_THROWS_WITH_AS(threads(), doctest::Contains("WORLD_SIZE is 2"), ConfigError);
}

}  // namespace device_test
