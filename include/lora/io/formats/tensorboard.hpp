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
#include "lora/io/files/file.hpp"

namespace lora::io {

namespace detail {

/// The fields of a protocol buffer message that an event needs.
class Message {
 public:
  void varint(unsigned field, std::uint64_t value);
  void fixed(unsigned field, double value);
  void fixed(unsigned field, float value);
  void text(unsigned field, std::string_view value);
  const std::string& bytes() const { return bytes_; }

 private:
  void tag(unsigned field, unsigned wire_type) { number(field << 3 | wire_type); }
  void number(std::uint64_t value);

  std::string bytes_;
};

/// A record as stored: length, checksum of the length, message, checksum of the message.
std::string framed(std::string_view message);

constexpr std::size_t record_head = 12, record_tail = 4;  // bytes around a message

/// The first record in `bytes`; nothing if it is truncated or damaged.
std::optional<std::string_view> first_record(std::string_view bytes);

/// The step of an event as written here: wall_time first, then the step, if any.
Index step_of_event(std::string_view message);

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
  static Kept kept_through(const Path& folder, Index step, std::size_t piece_bytes = std::size_t{1} << 16);

  /// Starts a new file, or keeps the events up to a step and appends.
  explicit TensorBoardWriter(const Path& folder, std::optional<Index> keep_through_step = std::nullopt);
  /// The same once it is known what is kept.
  TensorBoardWriter(const Path& folder, const std::optional<Kept>& kept);

  void write(Index step, std::span<const Scalar> scalars);

  void sync() { file_.sync(); }

 private:
  static double seconds_since_1970();

  static Path prepare(const Path& folder, const std::optional<Kept>& kept);

  FileWriter file_;
};

}  // namespace lora::io

#ifndef LORA_COMPILED
#  include "lora/io/formats/tensorboard.ipp"
#endif
