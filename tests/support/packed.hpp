#pragma once

#include <zlib.h>
#ifdef LORA_WITH_ZSTD
#  include <zstd.h>
#endif

#include <stdexcept>
#include <string>

namespace lora::test {

/// What gzip makes of a text.
inline std::string gzipped(std::string text) {
  z_stream stream{};
  constexpr int window_bits = 15, gzip = 16;
  if (deflateInit2(&stream, 6, Z_DEFLATED, window_bits + gzip, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::runtime_error("zlib could not begin");
  std::string packed(deflateBound(&stream, static_cast<uLong>(text.size())) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(text.data());
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) throw std::runtime_error("zlib did not end");
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

#ifdef LORA_WITH_ZSTD
/// What zstd makes of a text.
inline std::string zstandard(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  const std::size_t size = ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3);
  if (ZSTD_isError(size)) throw std::runtime_error(ZSTD_getErrorName(size));
  packed.resize(size);
  return packed;
}
#endif

}  // namespace lora::test
