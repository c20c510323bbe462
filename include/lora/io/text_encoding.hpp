#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

#include "lora/core/error.hpp"

namespace lora::io {

/// The name of the encoding of text that is none of UTF-8, by its byte order mark or, without one, the zero bytes
/// beside its first two characters; empty for everything else.
inline std::string_view wide_encoding(std::string_view text) {
  using namespace std::string_view_literals;
  if (text.starts_with("\xFF\xFE\0\0"sv) || text.starts_with("\0\0\xFE\xFF"sv)) return "UTF-32";
  if (text.starts_with("\xFF\xFE"sv) || text.starts_with("\xFE\xFF"sv)) return "UTF-16";
  // Two characters of ASCII, each of `width` bytes: binary files of other kinds do not begin like that.
  const auto two_of = [&](std::size_t width, std::size_t place) {
    if (text.size() < 2 * width) return false;
    for (std::size_t i = 0; i < 2 * width; ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      const bool ascii = (byte >= ' ' && byte < 0x7F) || byte == '\n' || byte == '\r' || byte == '\t';
      if (i % width == place ? !ascii : byte != 0) return false;
    }
    return true;
  };
  if (two_of(4, 0)) return "UTF-32LE";
  if (two_of(4, 3)) return "UTF-32BE";
  if (two_of(2, 0)) return "UTF-16LE";
  if (two_of(2, 1)) return "UTF-16BE";
  return {};
}

/// Throws   FormatError for a text in UTF-16 or UTF-32, as some editors and shells write it
inline void refuse_wide_text(const std::filesystem::path& path, std::string_view text) {
  const std::string_view encoding = wide_encoding(text);
  if (!encoding.empty())
    fail<FormatError>(path.native(), ": the text is ", encoding, "; expected UTF-8: iconv -f ", encoding,
                      " -t UTF-8 OLD > NEW converts it");
}

}  // namespace lora::io
