#pragma once

#include <charconv>
#include <concepts>
#include <stdexcept>
#include <string>
#include <string_view>

#include "lora/core/printable.hpp"

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

/// A part of a message with its type put away, so that joining is compiled once and not for every row of types.
class Piece {
 public:
  template <class T>
  requires(std::convertible_to<const T&, std::string_view>) Piece(const T& text)
      : kind_(Kind::text), text_(static_cast<std::string_view>(text)) {}
  Piece(char character) : kind_(Kind::character), character_(character) {}
  Piece(bool flag) : kind_(Kind::text), text_(flag ? "true" : "false") {}
  Piece(float number) : kind_(Kind::single), single_(number) {}
  template <std::floating_point F>
  Piece(F number) : kind_(Kind::real), real_(number) {}
  template <std::signed_integral I>
  Piece(I number) : kind_(Kind::whole), whole_(number) {}
  template <std::unsigned_integral I>
  Piece(I number) : kind_(Kind::natural), natural_(number) {}

  void append_to(std::string& message) const {
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
        end = std::to_chars(digits, digits + sizeof digits, single_).ptr;
        break;
      case Kind::real:
        end = std::to_chars(digits, digits + sizeof digits, real_).ptr;
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

 private:
  enum class Kind : unsigned char { text, character, single, real, whole, natural };

  Kind kind_;
  union {
    std::string_view text_;
    char character_;
    float single_;
    double real_;
    long long whole_;
    unsigned long long natural_;
  };
};

[[gnu::noinline]] inline std::string join(const Piece* pieces, std::size_t count) {
  std::string message;
  for (std::size_t i = 0; i < count; ++i) pieces[i].append_to(message);
  return message;
}

/// What is in a message may come from a stranger's file: a part that is longer than a screen is shortened.
[[gnu::noinline, gnu::cold]] inline std::string join_shortened(const Piece* pieces, std::size_t count) {
  constexpr std::size_t longest_part = 1000;
  std::string message;
  for (std::size_t i = 0; i < count; ++i) {
    std::string part;
    pieces[i].append_to(part);
    message += shortened(part, longest_part);
  }
  return message;
}

template <class E>
[[noreturn, gnu::noinline, gnu::cold]] void throw_joined(const Piece* pieces, std::size_t count) {
  throw E(printable(join_shortened(pieces, count)));
}

}  // namespace detail

/// The parts written one after the other; numbers in the shortest form that reads back the same.
template <class... Parts>
std::string concat(const Parts&... parts) {
  if constexpr (sizeof...(parts) == 0) {
    return {};
  } else {
    const detail::Piece pieces[] = {detail::Piece(parts)...};
    return detail::join(pieces, sizeof...(parts));
  }
}

/// Throws E with the parts joined as its message, of one line and without control characters.
template <std::derived_from<Error> E = Error, class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  const detail::Piece pieces[] = {detail::Piece(parts)...};
  detail::throw_joined<E>(pieces, sizeof...(parts));
}

}  // namespace lora
