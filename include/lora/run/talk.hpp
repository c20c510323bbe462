#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lora/core/format.hpp"
#include "lora/io/files/path.hpp"
#include "lora/model/weights/stop_ids.hpp"
#include "lora/tokenizer/chat_files.hpp"
#include "lora/tokenizer/tokenizer.hpp"

namespace lora::run {

/// How a trained model is talked to, and what of it the files of its base don't say.
struct Talk {
  const tokenizer::Tokenizer* tokenizer = nullptr;  ///< the base's; null if it has none
  std::string template_name{};                      ///< that a run wrote its conversations by
  tokenizer::ChatFiles changes{};                   ///< of the base's files
  std::vector<std::int32_t> stop_ids{};  ///< all, the learned end first, where the base does not stop there; else empty
};

/// `taught`: the template and the end of an answer that were learned, as far as they are known.
/// Throws   FormatError
Talk talk_of(const model::Source& source, const tokenizer::Tokenizer* tokenizer, const tokenizer::ChatFiles& taught,
             std::string template_name = "");

/// Writes the tokenizer's files, with the template and the end that were learned.
void write_tokenizer(const Talk& talk, const io::Path& folder);

/// The part of an adapter's README.md that tells how to stop generation, if its base does not stop where it must.
std::string stopping_text(const Talk& talk);

}  // namespace lora::run

#ifndef LORA_COMPILED
#  include "lora/run/talk.ipp"
#endif
