#pragma once

#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "lora/core/hash.hpp"
#include "lora/core/scalar.hpp"
#include "lora/io/file.hpp"

namespace lora::io {

namespace detail {

/// TFRecord's masked checksum, for data that itself contains checksums.
/// Source   TensorFlow, core/lib/hash/crc32c.h
inline std::uint32_t masked_crc32c(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u; }

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

/// The fields of a protocol buffer message that an event needs.
class Message {
 public:
  void varint(unsigned field, std::uint64_t value) {
    tag(field, 0);
    number(value);
  }
  void fixed(unsigned field, double value) {
    tag(field, 1);
    append_little_endian(bytes_, std::bit_cast<std::uint64_t>(value));
  }
  void fixed(unsigned field, float value) {
    tag(field, 5);
    append_little_endian(bytes_, std::bit_cast<std::uint32_t>(value));
  }
  void text(unsigned field, std::string_view value) {
    tag(field, 2);
    number(value.size());
    bytes_ += value;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void tag(unsigned field, unsigned wire_type) { number(field << 3 | wire_type); }
  void number(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

/// A record as stored: length, checksum of the length, message, checksum of the message.
inline std::string framed(std::string_view message) {
  std::string record;
  append_little_endian(record, std::uint64_t{message.size()});
  append_little_endian(record, masked_crc32c(record));
  record += message;
  append_little_endian(record, masked_crc32c(message));
  return record;
}

constexpr std::size_t record_head = 12, record_tail = 4;  // bytes around a message

/// The length of the message whose record begins with `bytes`; nothing if that is truncated or damaged.
inline std::optional<std::uint64_t> message_length(std::string_view bytes) {
  if (bytes.size() < record_head) return std::nullopt;
  if (read_little_endian<std::uint32_t>(bytes.substr(8)) != masked_crc32c(bytes.substr(0, 8))) return std::nullopt;
  return read_little_endian<std::uint64_t>(bytes);
}

/// The first record in `bytes`; nothing if it is truncated or damaged.
inline std::optional<std::string_view> first_record(std::string_view bytes) {
  const auto length = message_length(bytes);
  if (!length || bytes.size() < record_head + record_tail || *length > bytes.size() - record_head - record_tail)
    return std::nullopt;
  const std::string_view message = bytes.substr(record_head, *length);
  if (read_little_endian<std::uint32_t>(bytes.substr(record_head + *length)) != masked_crc32c(message))
    return std::nullopt;
  return bytes.substr(0, record_head + *length + record_tail);
}

/// The step of an event as written here: wall_time first, then the step, if any.
inline Index step_of_event(std::string_view message) {
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

}  // namespace detail

/// Writes scalars for TensorBoard. The file name is fixed, so that a resumed run appends to it.
/// Source   TensorFlow's TFRecord framing; tensorflow/core/util/event.proto and framework/summary.proto
class TensorBoardWriter {
 public:
  static constexpr const char* file_name = "events.out.tfevents.lora";

  struct Scalar {
    std::string_view tag;
    double value;
  };

  /// What stays of a file to which events are appended.
  struct Kept {
    std::uint64_t bytes = 0;
  };
  /// The events up to a step, and before the first one that a killed run has left cut. Nothing is changed.
  /// `piece_bytes`: how much is read at once, for a file may be of any size.
  static Kept kept_through(const Path& folder, Index step, std::size_t piece_bytes = std::size_t{1} << 16) {
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

  /// Starts a new file, or keeps the events up to a step and appends.
  explicit TensorBoardWriter(const Path& folder, std::optional<Index> keep_through_step = std::nullopt)
      : TensorBoardWriter(folder, keep_through_step ? std::optional(kept_through(folder, *keep_through_step))
                                                    : std::optional<Kept>()) {}
  /// The same once it is known what is kept.
  TensorBoardWriter(const Path& folder, const std::optional<Kept>& kept)
      : file_(prepare(folder, kept), FileWriter::Mode::append) {
    if (std::filesystem::file_size(file_.path()) > 0) return;
    detail::Message event;
    event.fixed(1, seconds_since_1970());
    event.text(3, "brain.Event:2");
    file_.write(detail::framed(event.bytes()));
  }

  void write(Index step, std::span<const Scalar> scalars) {
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

  void sync() { file_.sync(); }

 private:
  static double seconds_since_1970() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  }

  static Path prepare(const Path& folder, const std::optional<Kept>& kept) {
    create_folders(folder);
    const Path path = folder / file_name;
    if (kept)
      keep_begin(path, kept->bytes);
    else
      remove_file(path);
    return path;
  }

  FileWriter file_;
};

}  // namespace lora::io
