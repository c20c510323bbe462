#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>

namespace lora {

/// Numbers as printf writes them, where `concat`, which writes all their digits, says too much.
template <class... Numbers>
std::string formatted(const char* format, Numbers... numbers) {
  char text[160];
  const int length = std::snprintf(text, sizeof text, format, numbers...);
  return std::string(text, static_cast<std::size_t>(std::clamp(length, 0, static_cast<int>(sizeof text) - 1)));
}

}  // namespace lora
