#pragma once

#include <string>

#include "lora/data/sample.hpp"
#include "lora/tokenizer/tokenizer.hpp"

/// The prompt of a record, as the user wrote it.
inline std::string prompt_of(const lora::data::Sample& sample, const lora::tokenizer::Tokenizer& tokenizer) {
  if (sample.kind == lora::data::Sample::Kind::text) return sample.text;
  if (sample.kind == lora::data::Sample::Kind::tokens) return tokenizer.decode(sample.tokens);
  return sample.prompt();
}
