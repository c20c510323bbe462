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
  Charsmap(std::string_view bytes, const std::string& where);

  static constexpr std::size_t longest_text = 255;  ///< that a rule may write: Unicode's own take at most 33 bytes

 private:
  static constexpr std::size_t most_rules = 32;  // the places that the library has for the rules of one prefix
  static constexpr std::uint32_t no_state = UINT32_MAX;

  static std::uint32_t label(std::uint32_t unit) { return unit & (std::uint32_t{1} << 31 | 0xFF); }
  static std::uint32_t offset(std::uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }
  static bool has_leaf(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }

  /// Visits every reachable state, depth first. A state is open while its descendants are visited: reaching an open one
  /// is a cycle.
  void walk();

  void check_rule(std::uint32_t leaf) const;

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

#ifndef LORA_COMPILED
#  include "lora/tokenizer/charsmap.ipp"
#endif
