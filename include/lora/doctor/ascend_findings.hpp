#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lora/ascend/runtime/choice.hpp"
#include "lora/ascend/runtime/hccl.hpp"
#include "lora/ascend/runtime/toolkit.hpp"
#include "lora/core/environment.hpp"
#include "lora/core/error.hpp"
#include "lora/core/format.hpp"
#include "lora/doctor/ascend_machine.hpp"
#include "lora/doctor/findings.hpp"

namespace lora::doctor {

/// What there is for Ascend NPUs: the vendor's runtime, devices, operators and links between devices. `needed`: an NPU
/// is to be trained on, of those that `ids` names (none: any), so that what keeps it from that is missing. `type`: the
/// kind that it must be, or auto. `root` is where /dev and the driver's files are found.
std::vector<Finding> examine_ascend(bool needed, std::string_view type, std::span<const int> ids = {},
                                    const std::string& root = "");

}  // namespace lora::doctor

#ifndef LORA_COMPILED
#  include "lora/doctor/ascend_findings.ipp"
#endif
