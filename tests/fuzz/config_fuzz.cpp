#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "fuzz/target.hpp"
#include "lora/model/description/config_gguf.hpp"
#include "lora/model/description/config_json.hpp"

namespace fuzz_config {

namespace {

/// What a model that is built from it relies on.
void check(const lora::model::Config& config) {
  if (config.rotates.size() != static_cast<std::size_t>(config.num_hidden_layers)) __builtin_trap();
  if (config.windows.size() != static_cast<std::size_t>(config.num_hidden_layers)) __builtin_trap();
  if (config.num_attention_heads % config.num_key_value_heads != 0) __builtin_trap();
  const auto frequencies = lora::nn::inverse_frequencies(config.rope, config.head_dim);
  if (frequencies.size() != static_cast<std::size_t>(config.head_dim / 2)) __builtin_trap();
  for (const float frequency : frequencies)
    if (!std::isfinite(frequency)) __builtin_trap();
  if (!std::isfinite(lora::nn::rotary_magnitude(config.rope))) __builtin_trap();
}

/// The config.json that is written beside a merged model, if there can be one, is read again.
void check_written(const lora::model::Config& config) {
  std::optional<lora::io::Json> json;
  try {
    json = lora::model::to_json(config, "float32", "input");
  } catch (const lora::Error&) {
    return;
  }
  try {
    check(lora::model::parse_config(lora::io::parse_json(lora::io::to_text(*json), "written"), "written"));
  } catch (const lora::Error&) {
    __builtin_trap();
  }
}

}  // namespace

/// A config.json; or a GGUF file, whose metadata say the same.
LORA_FUZZ_TARGET(config, data, size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    if (input.starts_with("GGUF")) {
      const auto file = lora::io::Gguf::parse(std::as_bytes(std::span(data, size)), "input");
      const auto config = lora::model::read_config(file);
      check(config);
      check_written(config);
    } else {
      check(lora::model::parse_config(lora::io::parse_json(input, "input"), "input"));
    }
  } catch (const lora::Error&) {}
}

}  // namespace fuzz_config
