#pragma once

#include "lora/data/batches/encode.hpp"
#include "lora/inputs/model_files.hpp"

/// How prompts are encoded that a model is to answer.
inline lora::data::EncodeOptions prompt_options(const lora::settings::Config& config,
                                                const lora::model::Source& source) {
  lora::data::EncodeOptions options;
  options.render = lora::inputs::render_options(config);
  options.vocab_size = source.config().vocab_size;
  return options;
}
