#pragma once

#include "lora/core/config.hpp"
#include "lora/tokenizer/charsmap.hpp"

namespace lora::tokenizer::detail {

LORA_INLINE Charsmap::Charsmap(std::string_view bytes, const std::string& where) : where_(where) {
  if (bytes.empty()) return;
  std::uint32_t size = 0;
  if (bytes.size() < sizeof size) refuse("has only ", bytes.size(), " bytes");
  std::memcpy(&size, bytes.data(), sizeof size);
  bytes.remove_prefix(sizeof size);
  if (size == 0 || size % sizeof(std::uint32_t) != 0 || size > bytes.size())
    refuse("says that its index takes ", size, " of the ", bytes.size(), " bytes that follow; expected whole units");
  units_.resize(size / sizeof(std::uint32_t));
  std::memcpy(units_.data(), bytes.data(), size);
  texts_ = bytes.substr(size);
  if (texts_.empty() || texts_.back() != '\0') refuse("has rules without the zero byte at their end");
  if (const auto at = unicode::find_invalid_utf8(texts_); at != texts_.npos)
    refuse("writes text that is not valid UTF-8, at its byte ", at);
  walk();
}

LORA_INLINE void Charsmap::walk() {
  enum : std::uint8_t { unseen, open, done };
  struct Step {
    std::uint32_t state;
    std::uint32_t byte = 0;  // the next one to look at
    std::uint8_t rules = 0;  // most rules on one way from here
  };
  std::vector<std::uint8_t> seen(units_.size(), unseen), rules(units_.size(), 0);
  std::vector<Step> way;
  const auto enter = [&](std::uint32_t place) {
    const std::uint32_t state = place ^ offset(units_[place]);
    if ((state | 0xFF) >= units_.size())
      refuse("leads from unit ", place, " to unit ", state, ", outside of its ", units_.size());
    if (place != 0 && has_leaf(units_[place])) check_rule(units_[state]);
    if (seen[state] == open) refuse("leads from unit ", place, " round in a circle");
    if (seen[state] == unseen) {
      seen[state] = open;
      way.push_back({state});
    }
    return state;
  };
  enter(0);
  while (!way.empty()) {
    Step& step = way.back();
    if (step.byte == 256) {
      seen[step.state] = done;
      rules[step.state] = step.rules;
      way.pop_back();
      continue;
    }
    const std::uint32_t place = step.state ^ step.byte;
    if (label(units_[place]) != step.byte) {
      ++step.byte;
      continue;
    }
    const std::size_t depth = way.size();
    const std::uint32_t below = enter(place);
    if (way.size() > depth) continue;  // returns to this byte after visiting the descendants
    const int count = rules[below] + (has_leaf(units_[place]) ? 1 : 0);
    if (count > static_cast<int>(most_rules)) refuse("has more than ", most_rules, " rules for one beginning");
    step.rules = std::max(step.rules, static_cast<std::uint8_t>(count));
    ++step.byte;
  }
}

LORA_INLINE void Charsmap::check_rule(std::uint32_t leaf) const {
  const std::uint32_t begin = leaf & ~(std::uint32_t{1} << 31);
  if (begin >= texts_.size()) refuse("has a rule whose text begins at byte ", begin, " of ", texts_.size());
  if ((static_cast<unsigned char>(texts_[begin]) & 0xC0) == 0x80)
    refuse("has a rule whose text begins at byte ", begin, ", within a character");
  if (const std::size_t length = texts_.find('\0', begin) - begin; length > longest_text)
    refuse("has a rule that writes ", length, " bytes; at most ", longest_text, " are supported");
}

}  // namespace lora::tokenizer::detail
