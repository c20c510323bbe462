#pragma once

#include <cmath>
#include <string>

#include "lora/settings/settings.hpp"

namespace lora::test {

/// A value that a key takes and that is not its default.
inline std::string other_value(const settings::Key& key) {
  if (key.name == "device") return "ascend";
  if (key.form.fits) return key.name == "date" ? "2024-07-26" : key.name == "max_shard_size" ? "1GB" : "auto";
  if (key.choices.size() > 1) return std::string(key.choices[1]);
  if (!key.choices.empty()) return std::string(key.choices[0]);
  if (settings::is_switch(key)) return settings::default_text(key) == "true" ? "false" : "true";
  if (key.name == "stages") return R"([{"until_step": 3}])";
  if (settings::type_of(key) == settings::ValueType::stages) return R"([{"until": 1, "mix": {"a": 1}}])";
  const settings::ValueType type = settings::type_of(key);
  if (std::isfinite(key.range.high) && key.range.high <= 1) return type == settings::ValueType::integer ? "1" : "0.5";
  if (type == settings::ValueType::text || type == settings::ValueType::list) return "other";
  return settings::default_text(key) == "3" ? "5" : "3";
}

}  // namespace lora::test
