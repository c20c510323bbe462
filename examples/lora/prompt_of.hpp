#pragma once

#include <string>

#include "lora/data/encode.hpp"
#include "lora/data/sample.hpp"
#include "lora/inputs/model_files.hpp"
#include "lora/tokenizer/tokenizer.hpp"

/// The prompt of a record, as the user wrote it.
inline std::string prompt_of(const lora::data::Sample& sample, const lora::tokenizer::Tokenizer& tokenizer) {
  if (sample.kind == lora::data::Sample::Kind::text) return sample.text;
  if (sample.kind == lora::data::Sample::Kind::tokens) return tokenizer.decode(sample.tokens);
  return sample.prompt();
}

/// How prompts are encoded that a model is to answer.
inline lora::data::EncodeOptions prompt_options(const lora::settings::Config& config,
                                                const lora::model::Source& source) {
  lora::data::EncodeOptions options;
  options.render = lora::inputs::render_options(config);
  options.vocab_size = source.config().vocab_size;
  return options;
}
