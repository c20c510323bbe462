#pragma once

#include <cstdint>
#include <limits>

#include "lora/core/environment.hpp"
#include "lora/core/format.hpp"

namespace lora::ascend {

/// A card that is gone answers nothing; a wait that takes more seconds than this is an error.
/// Throws   ConfigError for anything else
inline int longest_wait() {
  constexpr int most = std::numeric_limits<std::int32_t>::max() / 1000;  // the runtime counts milliseconds
  return environment_number("LORA_ASCEND_TIMEOUT", 1, most, concat("whole seconds from 1 to ", most)).value_or(1800);
}

}  // namespace lora::ascend
