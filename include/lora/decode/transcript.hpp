#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/scalar.hpp"
#include "lora/data/batches/encode.hpp"
#include "lora/data/chat/chat_template.hpp"

namespace lora::decode {

/// The turns of a conversation, and which of them a model sees: of one that is longer than its context, the system
/// prompt and the newest.
class Transcript {
 public:
  /// `encoder` has the template and outlives it. `longest`: tokens of the context; 0: any number.
  Transcript(const data::Encoder& encoder, Index longest) : encoder_(&encoder), longest_(longest) {}

  /// The system prompt, if any, and all turns, also those that the model no longer sees.
  std::vector<data::Message> messages() const;
  const std::string& system() const { return system_; }
  std::size_t turns() const { return turns_.size(); }
  Index longest() const { return longest_; }

  /// Empty: none, or the template's own.
  void set_system(std::string text) { system_ = std::move(text); }
  void add(data::Message message) { turns_.push_back(std::move(message)); }
  /// Removes all turns.
  void clear();
  /// Removes the last turn.
  void take_back();
  /// Whether the last turn is of this role.
  bool ends_with(std::string_view role) const { return !turns_.empty() && turns_.back().role == role; }

  struct Prompt {
    std::vector<std::int32_t> ids;
    std::size_t dropped = 0;  ///< of the turns, the first so many are not in it
    std::size_t newly = 0;    ///< and so many of those were until now
  };

  /// What the model is to continue with its answer to the last turn. Leaves out the oldest questions with their answers
  /// as long as there is no room for `room` more tokens.
  /// Throws   FormatError if the last question alone leaves no room for a token, or a turn can't be written
  Prompt prompt(Index room);

 private:
  std::vector<std::int32_t> encode(std::size_t first) const;

  const data::Encoder* encoder_;
  Index longest_;
  std::string system_;
  std::vector<data::Message> turns_;
  std::size_t first_ = 0;  // of the turns that the model sees
};

}  // namespace lora::decode

#ifndef LORA_COMPILED
#  include "lora/decode/transcript.ipp"
#endif
