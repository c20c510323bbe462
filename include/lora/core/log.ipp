#pragma once

#include "lora/core/config.hpp"
#include "lora/core/log.hpp"

namespace lora::log {

LORA_INLINE void write(Level level, std::string_view text) {
  Redirect::send(Redirect::innermost(), level, printable(text, true));
}

}  // namespace lora::log
