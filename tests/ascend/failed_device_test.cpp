// A device whose work has failed is let go of like any other, and another one can be opened.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "lora/tensor/staging.hpp"
#include "support/message_of.hpp"
#include "support/stand_in.hpp"

namespace failed_device_test {

using namespace lora;
using namespace lora::test;
using Npu = ascend::Device;

TEST_CASE("ascend: a device with a failed kernel goes without an exception, and the next one works") {
  on_stand_in([] {
    {
      Npu dev;
      Tensor<Npu, float> x(dev, 1, 64);
      copy_staged<Npu, float>(dev, std::vector<float>(64, 2), x.view());
      dev.synchronize();
      const StandInSetting error("kernel_error_at", 1, -1);
      kernel::fill(dev, x.view(), 3);
      CHECK(holds(message_of<DeviceError>([&] { dev.synchronize(); }), "507015"));
      CHECK(holds(message_of<DeviceError>([&] { dev.synchronize(); }), "can't be used any more: "));
    }
    Npu dev;
    Tensor<Npu, float> x(dev, 1, 64);
    kernel::fill(dev, x.view(), 3);
    CHECK(to_host(dev, x.view()) == std::vector<float>(64, 3));
  });
}

}  // namespace failed_device_test
