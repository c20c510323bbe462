#pragma once

#include "lora/core/config.hpp"
#include "lora/io/files/text_encoding.hpp"

namespace lora::io {

LORA_INLINE std::string_view wide_encoding(std::string_view text) {
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

LORA_INLINE std::string_view wide_encoding_within(std::string_view text) {
  text = text.substr(0, std::size_t{1} << 16);
  std::size_t little = 0, big = 0, zeros = 0;
  const auto is_ascii = [](char c) { return c > 0 && static_cast<unsigned char>(c) < 0x7F; };
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    little += is_ascii(text[i]) && text[i + 1] == 0;
    big += text[i] == 0 && is_ascii(text[i + 1]);
    zeros += text[i] == 0 && text[i + 1] == 0;
  }
  if (little == big) return {};
  if (zeros > 0 && zeros >= text.size() / 4) return little > big ? "UTF-32LE" : "UTF-32BE";
  return zeros > 0 ? "" : little > big ? "UTF-16LE" : "UTF-16BE";
}

LORA_INLINE void refuse_wide_text(const Path& path, std::string_view text, bool is_utf8) {
  std::string_view encoding = wide_encoding(text);
  if (encoding.empty() && !is_utf8) encoding = wide_encoding_within(text);
  if (!encoding.empty())
    fail<FormatError>(path.native(), ": the text is ", encoding, "; expected UTF-8: iconv -f ", encoding,
                      " -t UTF-8 OLD > NEW converts it");
}

}  // namespace lora::io
