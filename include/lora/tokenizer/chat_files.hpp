#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "lora/io/files/file.hpp"
#include "lora/io/formats/json_view.hpp"
#include "lora/tokenizer/declared.hpp"
#include "lora/tokenizer/parts.hpp"

namespace lora::tokenizer {

/// What the files beside a vocabulary say of conversations; what they don't is empty.
struct ChatFiles {
  std::string chat_template{};
  std::string eos_token{};
};

/// Those of a folder, which may be an adapter's.
/// Throws   FormatError, IoError
ChatFiles read_chat_files(const io::Path& folder);

/// Makes the files that Tokenizer::save wrote into a folder say this, where it is not empty and they say otherwise. The
/// template stands in chat_template.jinja, which transformers takes first; programs that know only the entry in
/// tokenizer_config.json find the same there, where the base had one.
void write_chat_files(const io::Path& folder, const ChatFiles& chat);

}  // namespace lora::tokenizer

#ifndef LORA_COMPILED
#  include "lora/tokenizer/chat_files.ipp"
#endif
