#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

// The one way to format text: concat("loss ", fixed(loss, 4)).

namespace lora {

/// Lower case of ASCII's letters alone, whatever the locale is.
inline char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
inline std::string ascii_lower(std::string text) {
  for (char& c : text) c = ascii_lower(c);
  return text;
}

namespace detail {

/// The sign of a NaN says nothing, so it is not written.
template <std::floating_point F>
F unsigned_if_nan(F number) {
  return std::isnan(number) ? std::numeric_limits<F>::quiet_NaN() : number;
}

/// A value to format, type-erased: joining is compiled once instead of once per list of types.
class Argument {
 public:
  template <class T>
    requires(std::convertible_to<const T&, std::string_view>)
  Argument(const T& text) : kind_(Kind::text), text_(static_cast<std::string_view>(text)) {}
  Argument(char character) : kind_(Kind::character), character_(character) {}
  Argument(bool flag) : kind_(Kind::text), text_(flag ? "true" : "false") {}
  Argument(float number) : kind_(Kind::single), single_(number) {}
  template <std::floating_point F>
  Argument(F number) : kind_(Kind::real), real_(number) {}
  template <std::signed_integral I>
  Argument(I number) : kind_(Kind::whole), whole_(number) {}
  template <std::unsigned_integral I>
  Argument(I number) : kind_(Kind::natural), natural_(number) {}

  void append_to(std::string& message) const;

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

std::string join(const Argument* arguments, std::size_t count);

}  // namespace detail

/// Concatenates the parts; numbers have the shortest form that parses back to the same value.
template <class... Parts>
std::string concat(const Parts&... parts) {
  if constexpr (sizeof...(parts) == 0) {
    return {};
  } else {
    const detail::Argument arguments[] = {detail::Argument(parts)...};
    return detail::join(arguments, sizeof...(parts));
  }
}

/// A number with `digits` digits after the point, like printf's %.Nf.
inline std::string fixed(double number, int digits) {
  char text[400];
  return {
      text,
      std::to_chars(text, text + sizeof text, detail::unsigned_if_nan(number), std::chars_format::fixed, digits).ptr};
}

/// "12.5 MiB" or, from one on, "1.50 GiB".
inline std::string size_text(double bytes) {
  return bytes < 0x1p30 ? fixed(bytes / 0x1p20, 1) + " MiB" : fixed(bytes / 0x1p30, 2) + " GiB";
}
inline std::string size_text(std::size_t bytes) { return size_text(static_cast<double>(bytes)); }

/// A number with at most `digits` significant digits, like printf's %.Ng.
inline std::string significant(double number, int digits) {
  char text[64];
  return {
      text,
      std::to_chars(text, text + sizeof text, detail::unsigned_if_nan(number), std::chars_format::general, digits).ptr};
}

/// The same, but never with an exponent for large ones: 1234, not 1.23e+03.
inline std::string plain_number(double number, int digits) {
  return std::abs(number) >= std::pow(10, digits) ? fixed(number, 0) : significant(number, digits);
}

/// "a, b, c and 5 more".
std::string listed(const std::vector<std::string>& names);

}  // namespace lora

#ifndef LORA_COMPILED
#  include "lora/core/format.ipp"
#endif
