#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/io/mapped_file.hpp"
#include "lora/io/scratch_file.hpp"

namespace lora::data {

/// Many tokens, one after the other: in memory, and from 64 MiB on in a temporary file.
class TokenStore {
 public:
  explicit TokenStore(std::size_t most_in_memory = std::size_t{16} << 20) : most_(most_in_memory) {}

  std::size_t size() const { return stored_ + memory_.size(); }

  /// Throws   IoError, such as for a full disk, and Error after `finish`
  void append(std::span<const std::int32_t> tokens) {
    if (mapped_) fail<Error>("[token_store] tokens were appended after the last");
    memory_.insert(memory_.end(), tokens.begin(), tokens.end());
    constexpr std::size_t piece = std::size_t{1} << 18;  // of the file
    if (memory_.size() > (file_ ? std::min(most_, piece) : most_)) spill();
  }

  /// Ends the appending: tokens can be read from here on.
  void finish() {
    if (!file_) return;
    spill();
    mapped_ = std::make_shared<const io::MappedFile>(*file_, "the tokens of long texts");
    file_.reset();
  }

  /// Some of them, until the store is gone; the caller touches `used` of these. Thread-safe.
  /// Throws   ShapeError for tokens that are not there
  std::span<const std::int32_t> read(std::size_t first, std::size_t count, std::size_t used) const {
    if (file_ || first > size() || count > size() - first)
      fail<ShapeError>("[token_store] ", count, " tokens from ", first, " on were asked for, of ",
                       file_ ? "a store that is still written" : concat(size()));
    if (!mapped_) return std::span(memory_).subspan(first, count);
    mapped_->note_read(used * sizeof(std::int32_t));
    return {reinterpret_cast<const std::int32_t*>(mapped_->bytes().data()) + first, count};
  }

 private:
  void spill() {
    if (!file_) file_ = std::make_unique<io::ScratchFile>("the tokens of long texts");
    file_->write(std::as_bytes(std::span(memory_)));
    stored_ += memory_.size();
    memory_ = {};
  }

  std::size_t most_;
  std::size_t stored_ = 0;  // in the file
  std::vector<std::int32_t> memory_;
  std::unique_ptr<io::ScratchFile> file_;  // until all were appended
  std::shared_ptr<const io::MappedFile> mapped_;
};

}  // namespace lora::data
