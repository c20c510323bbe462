#include "lora/inputs/device.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <utility>

#include "support/environment.hpp"
#include "support/message_of.hpp"
#include "support/proof_device.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

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

TEST_CASE("device: settings name the precision, and auto is what the device computes best in") {
  const test::TempFolder folder;
  cpu::Device dev(1);
  settings::Config config;
  for (const DType stored : {DType::f32, DType::bf16, DType::f16}) {
    test::RandomModel model;
    model.dtype = stored;
    const io::Path path = folder / std::to_string(static_cast<int>(stored));
    test::write_random_model(path, model);
    const auto source = model::Source::open(path);
    const std::pair<const char*, Precision> named[] = {
        {"float32", Precision::float32}, {"bfloat16", Precision::bfloat16}, {"float16", Precision::float16}};
    for (const auto& entry : named) {
      config.dtype = entry.first;
      CHECK(inputs::precision_of(dev, config, source) == entry.second);
    }
    config.dtype = "auto";
    CHECK(inputs::precision_of(dev, config, source) == preferred_precision(dev, stored));
  }
  for (const Precision precision : {Precision::float32, Precision::bfloat16, Precision::float16})
    CHECK(inputs::with_precision(precision, [](auto type) { return precision_of<typename decltype(type)::type>(); }) ==
          precision);
}

TEST_CASE("device: the processors are a device's host threads, its own where it is them") {
  settings::Config config;
  config.threads = 3;
  cpu::Device dev(2);
  const inputs::HostThreads<cpu::Device> threads(dev, config);
  CHECK(&*threads == &dev);
  config.device = "cpu";
  CHECK(inputs::with_device(config, [](auto& made) { return made.threads(); }) == 3);
  // Of another device they are as many as the settings say.
  const proof::Device other(2);
  const inputs::HostThreads<proof::Device> beside(other, config);
  CHECK((*beside).threads() == 3);
}

#if !defined(LORA_WITH_ASCEND)
TEST_CASE("device: a program that was built without NPUs says so, however they are named") {
  settings::Config config;
  config.threads = 1;
  for (const char* name : {"ascend", "ascend:1"}) {
    config.device = name;
    CHECK(test::message_of<ConfigError>([&] { inputs::with_device(config, [](auto&) {}); }) ==
          concat("key device: given ", std::string_view(name),
                 ", but this program was built without Ascend NPUs; allowed: cpu; hint: a program that links "
                 "lora::ascend has them"));
  }
  config.device = "auto";
  CHECK(inputs::with_device(config, [](auto& dev) { return dev.threads(); }) == 1);
}
#endif

}  // namespace device_test
