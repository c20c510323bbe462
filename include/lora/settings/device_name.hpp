#pragma once

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

namespace lora::settings {

/// What the key device names.
struct DeviceName {
  enum class Kind {
    automatic,  ///< an NPU where one can be used, else the processors
    cpu,
    ascend
  };

  Kind kind = Kind::automatic;
  std::vector<int> ids{};  ///< of NPUs, one for each process; none: by LOCAL_RANK, or the first
};

/// auto, cpu, ascend, ascend:2 or ascend:0,1,2,3; nothing for another text.
std::optional<DeviceName> parse_device(std::string_view text);

}  // namespace lora::settings

#ifndef LORA_COMPILED
#  include "lora/settings/device_name.ipp"
#endif
