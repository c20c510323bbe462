#pragma once

#include <functional>

#include "lora/core/config.hpp"
#include "lora/model/decoder/trainable.hpp"

namespace lora::model {

LORA_INLINE std::set<std::string, std::less<>> trainable_tensors(const Config& config,
                                                                 const std::vector<std::string>& expressions) {
  std::set<std::string, std::less<>> chosen;
  if (expressions.empty())
    for (const TensorInfo& info : tensors_of(config)) chosen.insert(info.name);
  for (const std::string& expression : expressions) {
    const ModulePattern pattern(expression, ModulePattern::Fits::part);
    if (!pattern.known())
      fail<ConfigError>("key trainable: given ", expression,
                        ", which is not understood; allowed: names, dots, groups, ",
                        "choices, classes such as [0-9] and \\d, *, + and ?, ^ and $");
    bool any = false;
    for (const TensorInfo& info : tensors_of(config)) {
      if (!pattern.matches(info.name)) continue;
      any = true;
      chosen.insert(info.name);
    }
    const bool tied = config.tie_word_embeddings && pattern.matches("lm_head.weight");
    if (!any)
      fail<ConfigError>("key trainable: given ", expression, ", which is found in the name of no tensor; ",
                        tied ? "the head of this model is its embedding, model.embed_tokens.weight"
                             : concat("names are such as ", module_path(0, groups_of(config)[0].projections[0].name),
                                      ".weight, model.layers.0.input_layernorm.weight and model.embed_tokens.weight"));
  }
  return chosen;
}

}  // namespace lora::model
