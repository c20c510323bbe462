#pragma once

#include <system_error>

#include "lora/core/config.hpp"
#include "lora/settings/device_name.hpp"

namespace lora::settings {

LORA_INLINE std::optional<DeviceName> parse_device(std::string_view text) {
  using Kind = DeviceName::Kind;
  if (text == "auto") return DeviceName{Kind::automatic};
  if (text == "cpu") return DeviceName{Kind::cpu};
  constexpr std::string_view npu = "ascend";
  if (!text.starts_with(npu)) return std::nullopt;
  text.remove_prefix(npu.size());
  DeviceName name{Kind::ascend};
  if (text.empty()) return name;
  for (char mark = ':'; !text.empty(); mark = ',') {
    if (text.front() != mark) return std::nullopt;
    text.remove_prefix(1);
    constexpr int most = 4095;
    int id = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
    const bool known = std::find(name.ids.begin(), name.ids.end(), id) != name.ids.end();
    if (error != std::errc() || id < 0 || id > most || known || text.front() == '-') return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    name.ids.push_back(id);
  }
  return name;
}

}  // namespace lora::settings
