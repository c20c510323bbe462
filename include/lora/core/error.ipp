#pragma once

#include <cstddef>
#include <string>

#include "lora/core/config.hpp"
#include "lora/core/error.hpp"

namespace lora::detail {

[[gnu::noinline, gnu::cold]] LORA_INLINE std::string join_shortened(const Argument* arguments, std::size_t count) {
  constexpr std::size_t longest_part = 1000;
  std::string message;
  for (std::size_t i = 0; i < count; ++i) {
    std::string part;
    arguments[i].append_to(part);
    message += shortened(part, longest_part);
  }
  return message;
}

}  // namespace lora::detail
