#pragma once

#include <string>
#include <string_view>

#include "lora/core/error.hpp"

namespace lora::test {

/// What the call's E says.
template <class E = FormatError>
std::string message_of(auto&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

inline bool holds(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

}  // namespace lora::test
