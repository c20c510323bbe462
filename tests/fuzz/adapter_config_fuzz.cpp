#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/target.hpp"
#include "lora/model/decoder/adapter.hpp"

namespace fuzz_adapter_config {

using lora::io::to_text;
using lora::model::AdapterConfig;

/// An adapter_config.json.
LORA_FUZZ_TARGET(adapter_config, data, size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  AdapterConfig config;
  try {
    config = lora::model::parse_adapter_config(lora::io::parse_json(input, "input"), "input");
  } catch (const lora::Error&) {
    return;
  }
  for (const lora::Index layer : {0, 1, 31})
    for (const lora::model::Projection& projection : lora::model::projections) {
      const auto lora = config.rank_of(layer, projection.name);
      if (lora.rank < 0 || lora.rank > (1 << 16)) __builtin_trap();
      if (!std::isfinite(static_cast<float>(lora.scale))) __builtin_trap();
    }
  // What is saved is read again, and says the same.
  const std::string written = to_text(lora::model::to_json(config));
  const AdapterConfig again = lora::model::parse_adapter_config(lora::io::parse_json(written, "written"), "written");
  if (to_text(lora::model::to_json(again)) != written) __builtin_trap();
}

}  // namespace fuzz_adapter_config
