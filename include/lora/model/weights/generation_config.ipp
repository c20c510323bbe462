#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/formats/json_view.hpp"
#include "lora/model/weights/generation_config.hpp"

namespace lora::model::detail {

/// What transformers follows beside SamplingAdvice, each with the number that is as good as none.
/// Source   transformers 5, GenerationConfig
inline constexpr std::pair<std::string_view, double> other_advice[] = {{"no_repeat_ngram_size", 0},
                                                                       {"encoder_repetition_penalty", 1},
                                                                       {"typical_p", 1},
                                                                       {"top_h", 1},
                                                                       {"watermarking_config", 0},
                                                                       {"epsilon_cutoff", 0},
                                                                       {"eta_cutoff", 0},
                                                                       {"min_length", 0},
                                                                       {"min_new_tokens", 0},
                                                                       {"num_beams", 1},
                                                                       {"guidance_scale", 1},
                                                                       {"bad_words_ids", 0},
                                                                       {"suppress_tokens", 0},
                                                                       {"begin_suppress_tokens", 0},
                                                                       {"sequence_bias", 0},
                                                                       {"encoder_no_repeat_ngram_size", 0},
                                                                       {"forced_eos_token_id", -1},
                                                                       {"exponential_decay_length_penalty", 0},
                                                                       {"stop_strings", 0}};

}  // namespace lora::model::detail

namespace lora::model {

LORA_INLINE std::optional<io::Path> generation_config_of(const Source& source) {
  const auto file = source.path() / "generation_config.json";
  if (source.gguf() != nullptr || !io::is_there(file)) return std::nullopt;
  return file;
}

LORA_INLINE SamplingAdvice sampling_advice(const io::JsonView& json) {
  const auto number = [&](std::string_view key, bool (*fits)(double), std::string_view expected) {
    const auto value = json.get<double>(key);
    if (value && !fits(*value)) json.fail("\"", key, "\" is ", *value, "; expected ", expected);
    return value;
  };
  constexpr auto above_zero = [](double x) { return x > 0; };
  SamplingAdvice advice;
  advice.temperature = number("temperature", above_zero, "a number above 0");
  advice.top_p = number(
      "top_p", [](double x) { return x > 0 && x <= 1; }, "a number above 0, at most 1");
  advice.top_k = json.get<Index>("top_k");
  if (advice.top_k && *advice.top_k < 0) json.fail("\"top_k\" is ", *advice.top_k, "; expected 0 or more");
  advice.min_p = number(
      "min_p", [](double x) { return x >= 0 && x <= 1; }, "a number from 0 to 1");
  advice.repetition_penalty = number("repetition_penalty", above_zero, "a number above 0");
  return advice;
}

LORA_INLINE std::vector<std::string> unfollowed_advice(const io::JsonView& json) {
  std::vector<std::string> names;
  for (const auto& [name, without] : detail::other_advice) {
    const auto value = json.find(name);
    if (!value) continue;
    const io::Json& given = value->json();
    if (given.is_number() ? given.get<double>() != without : !given.empty()) names.emplace_back(name);
  }
  return names;
}

}  // namespace lora::model
