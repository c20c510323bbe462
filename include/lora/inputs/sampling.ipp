#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/core/error.hpp"
#include "lora/core/log.hpp"
#include "lora/inputs/sampling.hpp"
#include "lora/io/formats/json_view.hpp"
#include "lora/model/weights/generation_config.hpp"

namespace lora::inputs::detail {

/// Names what is not followed of `file`, which without `sample` decides nothing but where answers end.
LORA_INLINE void warn_of_unfollowed(const io::Path& file, const io::JsonView& json, bool sample) {
  auto names = model::unfollowed_advice(json);
  if (!sample) std::erase_if(names, [](const std::string& name) { return name != "stop_strings"; });
  if (!names.empty()) log::warn(file.native(), ": not followed: ", listed(names));
}

}  // namespace lora::inputs::detail

namespace lora::inputs {

LORA_INLINE decode::Sampling sampling_of(const settings::Config& config, const model::Source& source) {
  const decode::Sampling plain;
  std::string advised, defaults;
  const auto choose = [&](std::string_view name, const auto& key, const auto& advice, auto otherwise, auto unset) {
    if (key) return *key;
    if (!config.sample) return unset;
    std::string& list = advice ? advised : defaults;
    const auto value = advice ? *advice : otherwise;
    if (advice || otherwise != unset) list += concat(list.empty() ? "" : ", ", name, " ", value);
    return value;
  };
  const auto file = model::generation_config_of(source);
  std::optional<io::JsonFile> json;
  if (file) json.emplace(*file);
  const auto advice = json && config.sample ? model::sampling_advice(json->view()) : model::SamplingAdvice{};
  decode::Sampling how;
  how.temperature = choose("temperature", config.temperature, advice.temperature, 1.0, plain.temperature);
  how.top_k = choose("top_k", config.top_k, advice.top_k, Index{50}, plain.top_k);
  how.top_p = choose("top_p", config.top_p, advice.top_p, plain.top_p, plain.top_p);
  how.min_p = choose("min_p", config.min_p, advice.min_p, plain.min_p, plain.min_p);
  how.repetition_penalty = choose("repetition_penalty", config.repetition_penalty, advice.repetition_penalty,
                                  plain.repetition_penalty, plain.repetition_penalty);
  how.seed = static_cast<std::uint64_t>(config.seed);
  if (!advised.empty()) log::info("of ", file->native(), ": ", advised);
  if (json) detail::warn_of_unfollowed(*file, json->view(), config.sample);
  if (!defaults.empty()) log::info("as transformers' defaults: ", defaults);
  return how;
}

LORA_INLINE void warn_of_ends(const model::Source& source) {
  if (const auto file = model::generation_config_of(source))
    detail::warn_of_unfollowed(*file, io::JsonFile(*file).view(), false);
}

}  // namespace lora::inputs
