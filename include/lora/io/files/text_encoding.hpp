#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

#include "lora/core/error.hpp"
#include "lora/io/files/path.hpp"

namespace lora::io {

/// The name of the encoding of text that is none of UTF-8, by its byte order mark or, without one, the zero bytes
/// beside its first two characters; empty for everything else.
std::string_view wide_encoding(std::string_view text);

/// The same of bytes that are no UTF-8, whose text may begin with any character: by the zero bytes beside its line
/// ends and other characters of ASCII, of which other encodings have none.
std::string_view wide_encoding_within(std::string_view text);

/// Throws   FormatError for a text in UTF-16 or UTF-32, as some editors and shells write it. `is_utf8`: false where it
///          is known that it is none
void refuse_wide_text(const Path& path, std::string_view text, bool is_utf8 = true);

}  // namespace lora::io

#ifndef LORA_COMPILED
#  include "lora/io/files/text_encoding.ipp"
#endif
