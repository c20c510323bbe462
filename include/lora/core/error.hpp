#pragma once

#include <charconv>
#include <concepts>
#include <stdexcept>
#include <string>
#include <string_view>

namespace lora {

/// Every error that the library throws. The message names the operation or the file and place, what was found and what
/// was expected.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Operands whose shapes do not fit each other.
class ShapeError : public Error {
 public:
  using Error::Error;
};

/// A file whose content is broken or not supported.
class FormatError : public Error {
 public:
  using Error::Error;
};

/// A file or folder that cannot be opened, read or written.
class IoError : public Error {
 public:
  using Error::Error;
};

/// A device that is missing, out of memory or misused.
class DeviceError : public Error {
 public:
  using Error::Error;
};

/// A setting that is unknown, out of range or contradicts another.
class ConfigError : public Error {
 public:
  using Error::Error;
};

namespace detail {

inline void append(std::string& text, std::string_view part) { text += part; }
inline void append(std::string& text, char part) { text += part; }

template <class N>
requires(std::integral<N> || std::floating_point<N>) void append(std::string& text, N part) {
  if constexpr (std::same_as<N, bool>) {
    text += part ? "true" : "false";
  } else {
    char digits[64];
    const auto end = std::to_chars(digits, digits + sizeof digits, part).ptr;
    text.append(digits, end);
  }
}

}  // namespace detail

/// The parts written one after the other; numbers in the shortest form that reads back the same.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string text;
  (detail::append(text, parts), ...);
  return text;
}

/// Throws E with the parts joined as its message.
template <std::derived_from<Error> E = Error, class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw E(concat(parts...));
}

}  // namespace lora
