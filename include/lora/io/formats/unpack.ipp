#pragma once

#include "lora/core/config.hpp"
#include "lora/core/format.hpp"
#include "lora/io/formats/unpack.hpp"

namespace lora::io {

LORA_INLINE Packing packing_of(std::string_view content) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(content[at]); };
  if (content.size() >= 2 && byte(0) == 0x1F && byte(1) == 0x8B) return Packing::gzip;
  if (content.size() < 4) return Packing::none;
  const bool frame = byte(0) == 0x28 && byte(1) == 0xB5 && byte(2) == 0x2F && byte(3) == 0xFD;
  const bool skipped = (byte(0) & 0xF0u) == 0x50 && byte(1) == 0x2A && byte(2) == 0x4D && byte(3) == 0x18;
  return frame || skipped ? Packing::zstd : Packing::none;
}

}  // namespace lora::io

namespace lora::io::detail {

LORA_INLINE Unpacked::Unpacked(const std::string& name, std::size_t packed)
    : name_(name), most_(std::max(std::size_t{1} << 30, packed * std::size_t{256})), file_("what " + name + " holds") {}

LORA_INLINE void Unpacked::add(std::string_view piece) {
  size_ += piece.size();
  if (size_ > most_)
    fail<FormatError>(name_, ": unpacked it has more than ", most_, " bytes, over 256 times its size; unpack it by ",
                      "other means if that is right");
  file_.write(piece);
}

LORA_INLINE void fail_cut_short(const std::string& name) {
  fail<FormatError>(name, ": the compressed file ends too early; it was cut short");
}

[[noreturn]] inline void fail_unreadable(const std::string& name, std::string_view packing, std::string_view library,
                                         std::string_view tool) {
  fail<FormatError>(name, ": compressed with ", packing, ", which this program was built without (", library,
                    " was not found); unpack it with ", tool);
}

}  // namespace lora::io::detail

namespace lora::io {

LORA_INLINE std::shared_ptr<const MappedFile> map_unpacked(const Path& path) {
  auto mapped = std::make_shared<const MappedFile>(path);
  const Packing packing = packing_of(
      {reinterpret_cast<const char*>(mapped->bytes().data()), std::min<std::size_t>(mapped->bytes().size(), 4)});
  if (packing == Packing::none) return mapped;
  const std::string& name = path.native();
#ifndef LORA_WITH_ZLIB
  if (packing == Packing::gzip) detail::fail_unreadable(name, "gzip", "zlib", "gunzip");
#endif
#ifndef LORA_WITH_ZSTD
  if (packing == Packing::zstd) detail::fail_unreadable(name, "Zstandard", "libzstd", "unzstd");
#endif
  detail::Unpacked content(name, mapped->bytes().size());
#ifdef LORA_WITH_ZLIB
  if (packing == Packing::gzip) detail::unpack_gzip(*mapped, name, content);
#endif
#ifdef LORA_WITH_ZSTD
  if (packing == Packing::zstd) detail::unpack_zstd(*mapped, name, content);
#endif
  return std::make_shared<const MappedFile>(content.file(), path);
}

LORA_INLINE std::string lower_extension(const Path& path) { return ascii_lower(path.extension().native()); }

LORA_INLINE Path unpacked_name(Path path) {
  const std::string packed = lower_extension(path);
  const bool is_packed = packed == ".gz" || packed == ".gzip" || packed == ".zst" || packed == ".zstd";
  return is_packed ? path.replace_extension() : path;
}

}  // namespace lora::io
