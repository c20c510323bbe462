#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "lora/core/scalar.hpp"

namespace lora::settings {

/// Parses the whole text as a number; nothing if it isn't one, or isn't finite.
template <class N>
std::optional<N> parse_number(std::string_view text) {
  N value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if constexpr (std::is_floating_point_v<N>)
    if (!std::isfinite(value)) return std::nullopt;
  return value;
}

/// A size in bytes such as 500MB, 5GB (powers of 1000) or 4GiB (powers of 1024); nothing if the text isn't one.
std::optional<Index> parse_size(std::string_view text);

/// Splits at commas and trims spaces; empty parts are left out.
std::vector<std::string> split_list(std::string_view text);

/// The highest layer that a list may name, so that a typo in a range doesn't fill the memory.
constexpr Index highest_layer = 100'000;

/// Adds one layer for "4", four for "4..7"; false if the text is neither.
bool add_layers(std::vector<Index>& layers, std::string_view text);

}  // namespace lora::settings

#ifndef LORA_COMPILED
#  include "lora/settings/value_text.ipp"
#endif
