#pragma once

#include <concepts>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

#include "lora/core/format.hpp"
#include "lora/core/printable.hpp"

namespace lora {

/// Base of every error that the library throws. The message names the operation, or the file and the place in it, what
/// was found and what was expected.
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

/// A result that is NaN or infinite.
class NonFiniteError : public Error {
 public:
  using Error::Error;
};

/// A setting that is unknown, out of range or contradicts another.
class ConfigError : public Error {
 public:
  using Error::Error;
};

namespace detail {

/// Parts of a message may come from an untrusted file, so each one is limited to about a screenful.
std::string join_shortened(const Argument* arguments, std::size_t count);

template <class E>
[[noreturn, gnu::noinline, gnu::cold]] void throw_joined(const Argument* arguments, std::size_t count) {
  throw E(printable(join_shortened(arguments, count)));
}

}  // namespace detail

/// Throws E. The message is the parts joined, on one line and without control characters.
template <std::derived_from<Error> E = Error, class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  const detail::Argument arguments[] = {detail::Argument(parts)...};
  detail::throw_joined<E>(arguments, sizeof...(parts));
}

}  // namespace lora

#ifndef LORA_COMPILED
#  include "lora/core/error.ipp"
#endif
