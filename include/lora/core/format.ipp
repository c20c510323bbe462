#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/core/format.hpp"

namespace lora::detail {

LORA_INLINE void Argument::append_to(std::string& message) const {
  char digits[64];
  char* end = digits;
  switch (kind_) {
    case Kind::text:
      message += text_;
      return;
    case Kind::character:
      message += character_;
      return;
    case Kind::single:
      end = std::to_chars(digits, digits + sizeof digits, unsigned_if_nan(single_)).ptr;
      break;
    case Kind::real:
      end = std::to_chars(digits, digits + sizeof digits, unsigned_if_nan(real_)).ptr;
      break;
    case Kind::whole:
      end = std::to_chars(digits, digits + sizeof digits, whole_).ptr;
      break;
    case Kind::natural:
      end = std::to_chars(digits, digits + sizeof digits, natural_).ptr;
      break;
  }
  message.append(digits, end);
}

[[gnu::noinline]] LORA_INLINE std::string join(const Argument* arguments, std::size_t count) {
  std::string message;
  for (std::size_t i = 0; i < count; ++i) arguments[i].append_to(message);
  return message;
}

}  // namespace lora::detail

namespace lora {

LORA_INLINE std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t most = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > most) text += concat(" and ", names.size() - most, " more");
  return text;
}

}  // namespace lora
