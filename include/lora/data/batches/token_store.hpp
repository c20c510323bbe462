#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/io/files/mapped_file.hpp"
#include "lora/io/files/scratch_file.hpp"

namespace lora::data {

/// Many tokens, one after the other: in memory, and from 64 MiB on in a temporary file.
class TokenStore {
 public:
  explicit TokenStore(std::size_t most_in_memory = std::size_t{16} << 20) : most_(most_in_memory) {}

  std::size_t size() const { return stored_ + memory_.size(); }

  /// Throws   IoError, such as for a full disk, and Error after `finish`
  void append(std::span<const std::int32_t> tokens);

  /// Ends the appending: tokens can be read from here on.
  void finish();

  /// Some of them, until the store is gone; the caller touches `used` of these. Thread-safe.
  /// Throws   ShapeError for tokens that are not there
  std::span<const std::int32_t> read(std::size_t first, std::size_t count, std::size_t used) const;

 private:
  void spill();

  std::size_t most_;
  std::size_t stored_ = 0;  // in the file
  std::vector<std::int32_t> memory_;
  std::unique_ptr<io::ScratchFile> file_;  // until all were appended
  std::shared_ptr<const io::MappedFile> mapped_;
};

}  // namespace lora::data

#ifndef LORA_COMPILED
#  include "lora/data/batches/token_store.ipp"
#endif
