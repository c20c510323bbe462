#pragma once

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

namespace lora::settings {

/// What the key device names.
struct DeviceName {
  enum class Kind {
    automatic,  ///< an NPU where one can be used, else the processors
    cpu,
    ascend
  };

  Kind kind = Kind::automatic;
  std::vector<int> ids{};  ///< of NPUs, one for each process; none: by LOCAL_RANK, or the first
};

/// auto, cpu, ascend, ascend:2 or ascend:0,1,2,3; nothing for another text.
inline std::optional<DeviceName> parse_device(std::string_view text) {
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
