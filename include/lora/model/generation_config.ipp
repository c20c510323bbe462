#pragma once

#include <string_view>

#include "lora/core/config.hpp"
#include "lora/io/file.hpp"
#include "lora/io/json_view.hpp"
#include "lora/model/generation_config.hpp"

namespace lora::model {

LORA_INLINE SamplingAdvice sampling_advice(const Source& source) {
  const auto file = source.path() / "generation_config.json";
  if (source.gguf() != nullptr || !io::is_there(file)) return {};
  const io::JsonFile json(file);
  const auto number = [&](std::string_view key, bool (*fits)(double), std::string_view expected) {
    const auto value = json->get<double>(key);
    if (value && !fits(*value)) json.view().fail("\"", key, "\" is ", *value, "; expected ", expected);
    return value;
  };
  constexpr auto above_zero = [](double x) { return x > 0; };
  SamplingAdvice advice;
  advice.temperature = number("temperature", above_zero, "a number above 0");
  advice.top_p = number(
      "top_p", [](double x) { return x > 0 && x <= 1; }, "a number above 0, at most 1");
  advice.top_k = json->get<Index>("top_k");
  if (advice.top_k && *advice.top_k < 0) json.view().fail("\"top_k\" is ", *advice.top_k, "; expected 0 or more");
  advice.min_p = number(
      "min_p", [](double x) { return x >= 0 && x <= 1; }, "a number from 0 to 1");
  advice.repetition_penalty = number("repetition_penalty", above_zero, "a number above 0");
  return advice;
}

}  // namespace lora::model
