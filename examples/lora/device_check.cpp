#include "device_check.hpp"

#include <utility>

#include "lora/check/device_check.hpp"
#include "lora/inputs/device.hpp"
#include "lora/instantiate.hpp"

lora::check::Report check_device_of(const lora::settings::Config& config, lora::check::Report report,
                                    const std::function<void(const lora::check::Report&)>& begins) {
  lora::check::Options options;
  options.threads = static_cast<int>(config.threads.value_or(0));
  return lora::inputs::with_device_maker(
      config, [&](const auto& make) { return lora::check::check_device(make, options, std::move(report), begins); });
}
