#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/tokenizer/unicode.hpp"

namespace lora::tokenizer::detail {

/// The rules by which sentencepiece rewrites text before it cuts it (precompiled_charsmap): the size of an index, the
/// index, and the texts that rules write, each ended by a zero byte. The index is a trie as a double array
/// (darts-clone): from a state one byte of text leads to unit (state XOR byte), if that unit bears this byte, and on to
/// the state (place of the unit XOR its offset); a leaf lies at its state's own place and holds where a rule's text
/// begins.
///
/// The library follows it without bounds checks and has 32 slots for matches. So no text may lead out of the array,
/// into a cycle, or to more than 32 rules, and every rule's text must exist.
class Charsmap {
 public:
  Charsmap(std::string_view bytes, const std::string& where) : where_(where) {
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

 private:
  static constexpr std::size_t most_rules = 32;     // the places that the library has for the rules of one prefix
  static constexpr std::size_t longest_text = 255;  // of one rule: Unicode's own take at most 33 bytes
  static constexpr std::uint32_t no_state = UINT32_MAX;

  static std::uint32_t label(std::uint32_t unit) { return unit & (std::uint32_t{1} << 31 | 0xFF); }
  static std::uint32_t offset(std::uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }
  static bool has_leaf(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }

  /// Visits every reachable state, depth first. A state is open while its descendants are visited: reaching an open one
  /// is a cycle.
  void walk() {
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

  void check_rule(std::uint32_t leaf) const {
    const std::uint32_t begin = leaf & ~(std::uint32_t{1} << 31);
    if (begin >= texts_.size()) refuse("has a rule whose text begins at byte ", begin, " of ", texts_.size());
    if ((static_cast<unsigned char>(texts_[begin]) & 0xC0) == 0x80)
      refuse("has a rule whose text begins at byte ", begin, ", within a character");
    if (const std::size_t length = texts_.find('\0', begin) - begin; length > longest_text)
      refuse("has a rule that writes ", length, " bytes; at most ", longest_text, " are supported");
  }

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail<FormatError>(where_, ": not a sentencepiece model: its table of characters (precompiled_charsmap) ", parts...);
  }

  const std::string& where_;
  std::vector<std::uint32_t> units_;
  std::string_view texts_;
};

/// Throws   FormatError where following the rules could leave what the field holds
inline void check_charsmap(std::string_view bytes, const std::string& where) { (void)Charsmap(bytes, where); }

}  // namespace lora::tokenizer::detail
