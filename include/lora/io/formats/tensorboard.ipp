#pragma once

#include "lora/core/config.hpp"
#include "lora/io/formats/tensorboard.hpp"

namespace lora::io::detail {

/// TFRecord's masked checksum, for data that itself contains checksums.
/// Source   TensorFlow, core/lib/hash/crc32c.h
LORA_INLINE std::uint32_t masked_crc32c(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u; }

template <class N>
void append_little_endian(std::string& bytes, N number) {
  for (std::size_t i = 0; i < sizeof(N); ++i) bytes += static_cast<char>((number >> (8 * i)) & 0xFFu);
}

template <class N>
N read_little_endian(std::string_view bytes) {
  N number = 0;
  for (std::size_t i = 0; i < sizeof(N); ++i) number |= N{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return number;
}

LORA_INLINE void Message::varint(unsigned field, std::uint64_t value) {
  tag(field, 0);
  number(value);
}

LORA_INLINE void Message::fixed(unsigned field, double value) {
  tag(field, 1);
  append_little_endian(bytes_, std::bit_cast<std::uint64_t>(value));
}

LORA_INLINE void Message::fixed(unsigned field, float value) {
  tag(field, 5);
  append_little_endian(bytes_, std::bit_cast<std::uint32_t>(value));
}

LORA_INLINE void Message::text(unsigned field, std::string_view value) {
  tag(field, 2);
  number(value.size());
  bytes_ += value;
}

LORA_INLINE void Message::number(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
  bytes_ += static_cast<char>(value);
}

LORA_INLINE std::string framed(std::string_view message) {
  std::string record;
  append_little_endian(record, std::uint64_t{message.size()});
  append_little_endian(record, masked_crc32c(record));
  record += message;
  append_little_endian(record, masked_crc32c(message));
  return record;
}

/// The length of the message whose record begins with `bytes`; nothing if that is truncated or damaged.
LORA_INLINE std::optional<std::uint64_t> message_length(std::string_view bytes) {
  if (bytes.size() < record_head) return std::nullopt;
  if (read_little_endian<std::uint32_t>(bytes.substr(8)) != masked_crc32c(bytes.substr(0, 8))) return std::nullopt;
  return read_little_endian<std::uint64_t>(bytes);
}

LORA_INLINE std::optional<std::string_view> first_record(std::string_view bytes) {
  const auto length = message_length(bytes);
  if (!length || bytes.size() < record_head + record_tail || *length > bytes.size() - record_head - record_tail)
    return std::nullopt;
  const std::string_view message = bytes.substr(record_head, *length);
  if (read_little_endian<std::uint32_t>(bytes.substr(record_head + *length)) != masked_crc32c(message))
    return std::nullopt;
  return bytes.substr(0, record_head + *length + record_tail);
}

LORA_INLINE Index step_of_event(std::string_view message) {
  constexpr std::size_t wall_time = 9;
  if (message.size() <= wall_time || message[wall_time] != 0x10) return 0;
  std::uint64_t step = 0;
  unsigned shift = 0;
  for (std::size_t i = wall_time + 1; i < message.size() && shift < 64; ++i, shift += 7) {
    step |= std::uint64_t{static_cast<unsigned char>(message[i]) & 0x7Fu} << shift;
    if ((message[i] & 0x80) == 0) break;
  }
  return static_cast<Index>(step);
}

}  // namespace lora::io::detail

namespace lora::io {

LORA_INLINE TensorBoardWriter::Kept TensorBoardWriter::kept_through(const Path& folder, Index step,
                                                                    std::size_t piece_bytes) {
  const Path path = folder / file_name;
  if (!is_there(path)) return {};
  FileWindow file(path, piece_bytes);
  while (const auto length = detail::message_length(file.look(detail::record_head))) {
    if (*length > file.size()) break;  // else memory for it could not be had
    const auto record = detail::first_record(file.look(detail::record_head + *length + detail::record_tail));
    if (!record || detail::step_of_event(record->substr(detail::record_head)) > step) break;
    file.pass(record->size());
  }
  return {file.offset()};
}

LORA_INLINE TensorBoardWriter::TensorBoardWriter(const Path& folder, std::optional<Index> keep_through_step)
    : TensorBoardWriter(folder, keep_through_step ? std::optional(kept_through(folder, *keep_through_step))
                                                  : std::optional<Kept>()) {}

LORA_INLINE TensorBoardWriter::TensorBoardWriter(const Path& folder, const std::optional<Kept>& kept)
    : file_(prepare(folder, kept), FileWriter::Mode::append) {
  if (std::filesystem::file_size(file_.path()) > 0) return;
  detail::Message event;
  event.fixed(1, seconds_since_1970());
  event.text(3, "brain.Event:2");
  file_.write(detail::framed(event.bytes()));
}

LORA_INLINE void TensorBoardWriter::write(Index step, std::span<const Scalar> scalars) {
  detail::Message summary;
  for (const Scalar& scalar : scalars) {
    detail::Message value;
    value.text(1, scalar.tag);
    value.fixed(2, static_cast<float>(scalar.value));
    summary.text(1, value.bytes());
  }
  detail::Message event;
  event.fixed(1, seconds_since_1970());
  event.varint(2, static_cast<std::uint64_t>(step));
  event.text(5, summary.bytes());
  file_.write(detail::framed(event.bytes()));
}

LORA_INLINE double TensorBoardWriter::seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

LORA_INLINE Path TensorBoardWriter::prepare(const Path& folder, const std::optional<Kept>& kept) {
  create_folders(folder);
  const Path path = folder / file_name;
  if (kept)
    keep_begin(path, kept->bytes);
  else
    remove_file(path);
  return path;
}

}  // namespace lora::io
