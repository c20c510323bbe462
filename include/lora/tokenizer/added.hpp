#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/tokenizer/unicode.hpp"

namespace lora::tokenizer {

/// A token that is matched in the text before the text is split into words.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;      ///< decode can leave it out
  bool normalized = false;   ///< matched in the normalized text
  bool lstrip = false;       ///< includes white space before it
  bool rstrip = false;       ///< includes white space after it
  bool single_word = false;  ///< only if no word character is adjacent
};

/// Finds added tokens in a text, leftmost-longest. The text is scanned once, backwards, by an automaton over the
/// reversed tokens, which knows at every byte the longest token that begins there. Linear time for all texts and
/// tokens. Source   Aho and Corasick 1975
class AddedTokenFinder {
 public:
  void add(AddedToken token);

  /// Call after adding all tokens. `leave_special`: special tokens are found, but are text.
  void finish(bool leave_special = false);

  bool empty() const { return tokens_.empty(); }

  /// Calls `take_text(begin, end)` and `take_token(id, begin, end)` for the parts of the text in order.
  template <class TakeText, class TakeToken>
  void split(std::string_view text, TakeText&& take_text, TakeToken&& take_token) const {
    const auto& classes = unicode::Classes::instance();
    const std::vector<Hit> hits = find_all(text);
    std::size_t done = 0, place = 0;
    std::size_t white_end = 0;  // of the white space after a token that was looked through last
    for (auto hit = hits.rbegin(); hit != hits.rend(); ++hit) {
      if (hit->begin < place) continue;
      place = hit->begin;
      const AddedToken& token = tokens_[static_cast<std::size_t>(hit->token)];
      std::size_t begin = place, end = place + token.content.size();
      place = end;
      if (leave_special_ && token.special) continue;
      if (token.single_word) {
        const bool touched_before =
            begin > 0 && (classes(unicode::code_point_before(text, begin).value) & unicode::word);
        const bool touched_after =
            end < text.size() && (classes(unicode::code_point_at(text, end).value) & unicode::word);
        if (touched_before || touched_after) continue;
      }
      if (token.lstrip) {
        while (begin > done) {
          const auto c = unicode::code_point_before(text, begin);
          if (!(classes(c.value) & unicode::space)) break;
          begin -= c.bytes;
        }
      }
      if (token.rstrip) {
        white_end = std::max(white_end, end);
        while (white_end < text.size()) {
          const auto c = unicode::code_point_at(text, white_end);
          if (!(classes(c.value) & unicode::space)) break;
          white_end += c.bytes;
        }
        end = white_end;
      }
      if (done < begin) take_text(done, begin);
      take_token(token.id, begin, end);
      done = end;
    }
    if (done < text.size()) take_text(done, text.size());
  }

 private:
  static constexpr std::int32_t root = 0, none = -1;

  struct Node {
    char byte;
    std::int32_t child, sibling;
    std::int32_t token;    ///< that ends here, read backwards
    std::int32_t back;     ///< the longest other beginning of a token that the bytes up to here end with
    std::int32_t longest;  ///< token that the bytes up to here end with
  };
  struct Hit {
    std::size_t begin;
    std::int32_t token;
  };

  Node& at(std::int32_t node) { return nodes_[static_cast<std::size_t>(node)]; }
  const Node& at(std::int32_t node) const { return nodes_[static_cast<std::size_t>(node)]; }
  std::int32_t add_node(char byte, std::int32_t sibling);
  std::int32_t find_child(std::int32_t node, char byte) const;
  std::int32_t follow(std::int32_t node, char byte) const;

  /// For each place where a token begins the longest, the last place first.
  std::vector<Hit> find_all(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<std::int32_t, 256> roots_ = [] {
    std::array<std::int32_t, 256> all{};
    all.fill(none);
    return all;
  }();
  bool linked_ = true;
  bool leave_special_ = false;
};

}  // namespace lora::tokenizer

#ifndef LORA_COMPILED
#  include "lora/tokenizer/added.ipp"
#endif
