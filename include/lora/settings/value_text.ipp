#pragma once

#include "lora/core/config.hpp"
#include "lora/settings/value_text.hpp"

namespace lora::settings {

LORA_INLINE std::optional<Index> parse_size(std::string_view text) {
  constexpr std::pair<std::string_view, double> units[] = {{"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
                                                           {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9}};
  for (const auto& [unit, bytes] : units) {
    if (!text.ends_with(unit)) continue;
    const auto number = parse_number<double>(text.substr(0, text.size() - unit.size()));
    if (number && *number > 0 && *number * bytes < 0x1p62) return static_cast<Index>(*number * bytes);
  }
  return std::nullopt;
}

LORA_INLINE std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view part = text.substr(0, comma);
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    if (!part.empty()) parts.emplace_back(part);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

LORA_INLINE bool add_layers(std::vector<Index>& layers, std::string_view text) {
  const std::size_t dots = text.find("..");
  const auto first = parse_number<Index>(text.substr(0, dots));
  const auto last = dots == std::string_view::npos ? first : parse_number<Index>(text.substr(dots + 2));
  if (!first || !last || *first < 0 || *last < *first || *last > highest_layer) return false;
  for (Index layer = *first; layer <= *last; ++layer) layers.push_back(layer);
  return true;
}

}  // namespace lora::settings
