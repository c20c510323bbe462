#include "device_check.hpp"

#include <utility>

#include "lora/doctor/device_check.hpp"
#include "lora/inputs/device.hpp"
#include "lora/instantiate.hpp"

lora::doctor::Report check_device_of(const lora::settings::Config& config, lora::doctor::Report report,
                                     const std::function<void(const lora::doctor::Report&)>& begins) {
  lora::doctor::Options options;
  options.threads = static_cast<int>(config.threads.value_or(0));
  return lora::inputs::with_device_maker(
      config, [&](const auto& make) { return lora::doctor::check_device(make, options, std::move(report), begins); });
}
