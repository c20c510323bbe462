#pragma once

#include <functional>

#include "lora/doctor/report.hpp"
#include "lora/settings/config.hpp"

/// Tries the device that the settings name; `report` has what is known of it already. `begins(report)` is called before
/// each part. In a source of its own, which has every kernel in it.
/// Throws   ConfigError, or DeviceError where there is no such device
lora::doctor::Report check_device_of(const lora::settings::Config& config, lora::doctor::Report report,
                                     const std::function<void(const lora::doctor::Report&)>& begins);
