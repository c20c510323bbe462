#pragma once

#include <string>

#include "lora/core/format.hpp"
#include "lora/core/log.hpp"
#include "lora/io/files/paths.hpp"
#include "lora/run/metrics.hpp"
#include "lora/run/status_line.hpp"
#include "lora/settings/config.hpp"

namespace lora::train {

/// Logs what a finished run has come to, and where it lies. `seconds`: of the whole run.
void say_end(const settings::Config& config, const run::RunMetrics& metrics, double seconds);

}  // namespace lora::train

#ifndef LORA_COMPILED
#  include "lora/train/summary.ipp"
#endif
