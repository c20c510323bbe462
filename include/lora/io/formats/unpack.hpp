#pragma once

#ifdef LORA_WITH_ZLIB
#  include <zlib.h>
#endif
#ifdef LORA_WITH_ZSTD
#  include <zstd.h>
#  include <zstd_errors.h>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include "lora/core/error.hpp"
#include "lora/io/files/mapped_file.hpp"
#include "lora/io/files/path.hpp"
#include "lora/io/files/scratch_file.hpp"

namespace lora::io {

/// How a file is compressed.
enum class Packing { none, gzip, zstd };

/// By the bytes that it begins with, whatever its name.
/// Source   RFC 1952, section 2.3.1; RFC 8878, sections 3.1.1 and 3.1.2 (skippable frames)
Packing packing_of(std::string_view content);

namespace detail {

/// Takes what a compressed file holds, and stops what would only fill the disk.
class Unpacked {
 public:
  Unpacked(const std::string& name, std::size_t packed);

  void add(std::string_view piece);
  const ScratchFile& file() const { return file_; }

 private:
  const std::string& name_;
  std::size_t most_;
  std::size_t size_ = 0;
  ScratchFile file_;
};

constexpr std::size_t unpacked_piece = std::size_t{1} << 18;

[[noreturn]] void fail_cut_short(const std::string& name);

#ifdef LORA_WITH_ZLIB
/// One member after the other, as gzip reads them; zeros may follow the last.
inline void unpack_gzip(const MappedFile& packed, const std::string& name, Unpacked& to) {
  z_stream stream{};
  constexpr int window_bits = 15, gzip_only = 16;
  if (inflateInit2(&stream, window_bits + gzip_only) != Z_OK) fail<IoError>(name, ": zlib could not begin");
  const std::unique_ptr<z_stream, void (*)(z_stream*)> owner(&stream, [](z_stream* ended) { inflateEnd(ended); });
  const auto* const bytes = reinterpret_cast<const char*>(packed.bytes().data());
  std::string_view left(bytes, packed.bytes().size());
  std::string piece(unpacked_piece, '\0');
  for (;;) {
    const std::size_t given = std::min(left.size(), unpacked_piece);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(left.data()));  // only read
    stream.avail_in = static_cast<uInt>(given);
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    const int result = inflate(&stream, Z_NO_FLUSH);
    const std::size_t taken = given - stream.avail_in, held = piece.size() - stream.avail_out;
    left.remove_prefix(taken);
    packed.note_read(taken);
    to.add(std::string_view(piece).substr(0, held));
    if (result == Z_STREAM_END) {
      if (left.find_first_not_of('\0') == left.npos) return;
      if (packing_of(left) != Packing::gzip)
        fail<FormatError>(name, ": bytes that are not gzip's follow after byte ", left.data() - bytes);
      inflateReset(&stream);
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      fail<FormatError>(name, ": the compressed file is damaged near byte ", left.data() - bytes, ": ",
                        stream.msg != nullptr ? std::string_view(stream.msg) : "no gzip data");
    } else if (taken == 0 && held == 0) {
      fail_cut_short(name);
    }
  }
}
#endif

#ifdef LORA_WITH_ZSTD
inline void unpack_zstd(const MappedFile& packed, const std::string& name, Unpacked& to) {
  const std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> stream(ZSTD_createDStream(), ZSTD_freeDStream);
  if (!stream) fail<IoError>(name, ": libzstd could not begin");
  std::string piece(unpacked_piece, '\0');
  ZSTD_inBuffer in{packed.bytes().data(), packed.bytes().size(), 0};
  for (std::size_t due = 1; in.pos < in.size || due != 0;) {
    const std::size_t before = in.pos;
    ZSTD_inBuffer some{in.src, std::min(in.size, in.pos + unpacked_piece), in.pos};
    ZSTD_outBuffer out{piece.data(), piece.size(), 0};
    due = ZSTD_decompressStream(stream.get(), &out, &some);
    in.pos = some.pos;
    if (ZSTD_getErrorCode(due) == ZSTD_error_frameParameter_windowTooLarge)
      fail<FormatError>(name, ": the compressed file asks for a window of more than 128 MiB; pack it again without ",
                        "zstd's --long or --ultra");
    if (ZSTD_isError(due))
      fail<FormatError>(name, ": the compressed file is damaged near byte ", before, ": ",
                        std::string_view(ZSTD_getErrorName(due)));
    packed.note_read(in.pos - before);
    to.add(std::string_view(piece).substr(0, out.pos));
    if (due != 0 && in.pos == in.size && in.pos == before && out.pos == 0) fail_cut_short(name);
  }
}
#endif

}  // namespace detail

/// The content of a file, mapped. What is compressed with gzip or Zstandard is unpacked to a temporary file first.
/// Throws   IoError; FormatError for a damaged file and for one that the build has no library for
std::shared_ptr<const MappedFile> map_unpacked(const Path& path);

/// The extension of a path in lower case.
std::string lower_extension(const Path& path);

/// The name of what a data file holds: without .gz or .zst, or how else these are spelled.
Path unpacked_name(Path path);

}  // namespace lora::io

#ifndef LORA_COMPILED
#  include "lora/io/formats/unpack.ipp"
#endif
