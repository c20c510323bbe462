#pragma once

#include "lora/core/config.hpp"
#include "lora/data/batches/token_store.hpp"

namespace lora::data {

LORA_INLINE void TokenStore::append(std::span<const std::int32_t> tokens) {
  if (mapped_) fail<Error>("[token_store] tokens were appended after the last");
  memory_.insert(memory_.end(), tokens.begin(), tokens.end());
  constexpr std::size_t piece = std::size_t{1} << 18;  // of the file
  if (memory_.size() > (file_ ? std::min(most_, piece) : most_)) spill();
}

LORA_INLINE void TokenStore::finish() {
  if (!file_) return;
  spill();
  mapped_ = std::make_shared<const io::MappedFile>(*file_, "the tokens of long texts");
  file_.reset();
}

LORA_INLINE std::span<const std::int32_t> TokenStore::read(std::size_t first, std::size_t count,
                                                           std::size_t used) const {
  if (file_ || first > size() || count > size() - first)
    fail<ShapeError>("[token_store] ", count, " tokens from ", first, " on were asked for, of ",
                     file_ ? "a store that is still written" : concat(size()));
  if (!mapped_) return std::span(memory_).subspan(first, count);
  mapped_->note_read(used * sizeof(std::int32_t));
  return {reinterpret_cast<const std::int32_t*>(mapped_->bytes().data()) + first, count};
}

LORA_INLINE void TokenStore::spill() {
  if (!file_) file_ = std::make_unique<io::ScratchFile>("the tokens of long texts");
  file_->write(std::as_bytes(std::span(memory_)));
  stored_ += memory_.size();
  memory_ = {};
}

}  // namespace lora::data
