#pragma once

#include "lora/core/config.hpp"
#include "lora/core/error.hpp"
#include "lora/decode/transcript.hpp"

namespace lora::decode {

LORA_INLINE std::vector<data::Message> Transcript::messages() const {
  std::vector<data::Message> all = turns_;
  if (!system_.empty()) all.insert(all.begin(), {"system", system_});
  return all;
}

LORA_INLINE void Transcript::clear() {
  turns_.clear();
  first_ = 0;
}

LORA_INLINE void Transcript::take_back() {
  turns_.pop_back();
  if (first_ >= turns_.size()) first_ = 0;
}

LORA_INLINE std::vector<std::int32_t> Transcript::encode(std::size_t first) const {
  data::Sample sample;
  sample.where = "conversation";
  if (!system_.empty()) sample.messages.push_back({"system", system_});
  sample.messages.insert(sample.messages.end(), turns_.begin() + static_cast<std::ptrdiff_t>(first), turns_.end());
  return encoder_->prompt(sample);
}

LORA_INLINE Transcript::Prompt Transcript::prompt(Index room) {
  for (std::size_t first = first_;;) {
    std::vector<std::int32_t> ids = encode(first);
    std::size_t next = first + 1;
    while (next < turns_.size() && turns_[next].role != "user") ++next;
    const bool last = next >= turns_.size();
    const Index length = std::ssize(ids);
    if (longest_ == 0 || length + (last ? 1 : room) <= longest_) {
      const std::size_t before = std::exchange(first_, first);
      return {std::move(ids), first, first - before};
    }
    if (last)
      fail<FormatError>("the message is too long: with what the template writes around it, it has ", length,
                        " tokens, but all of the conversation may have ", longest_, ", its answer included");
    first = next;
  }
}

}  // namespace lora::decode
