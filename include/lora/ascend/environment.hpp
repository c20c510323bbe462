#pragma once

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>

#include "lora/core/error.hpp"

namespace lora::ascend {

/// A number from `least` to `most` that the environment sets; nothing where it does not.
/// Throws   ConfigError for anything else, and says what was `expected`
inline std::optional<int> environment_number(const char* name, int least, int most, std::string_view expected) {
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  const std::string_view digits(text);
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < least || value > most)
    fail<ConfigError>("the environment's ", name, " is '", digits, "'; expected ", expected);
  return value;
}

/// A card that is gone answers nothing; a wait that takes more seconds than this is an error.
/// Throws   ConfigError as above
inline int longest_wait() {
  constexpr int most = std::numeric_limits<std::int32_t>::max() / 1000;  // the runtime counts milliseconds
  return environment_number("LORA_ASCEND_TIMEOUT", 1, most, concat("whole seconds from 1 to ", most)).value_or(1800);
}

}  // namespace lora::ascend
