#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/io/unicode.hpp"

namespace lora::io {

/// A token that is found in the text as it stands, before the text is cut into words.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;      ///< left out by decode on demand
  bool normalized = false;   ///< looked for in the normalised text
  bool lstrip = false;       ///< takes white space before it along
  bool rstrip = false;       ///< takes white space after it along
  bool single_word = false;  ///< only where no word character touches it
};

/// Finds added tokens in a text: leftmost first, of those the longest.
class AddedTokenFinder {
 public:
  void add(AddedToken token) {
    if (token.content.empty()) return;
    std::int32_t node = roots_[static_cast<unsigned char>(token.content[0])];
    if (node < 0) {
      node = add_node(token.content[0], -1);
      roots_[static_cast<unsigned char>(token.content[0])] = node;
    }
    for (const char byte : std::string_view(token.content).substr(1)) {
      std::int32_t child = find_child(node, byte);
      if (child < 0) {
        child = add_node(byte, at(node).child);
        nodes_[static_cast<std::size_t>(node)].child = child;
      }
      node = child;
    }
    nodes_[static_cast<std::size_t>(node)].token = static_cast<std::int32_t>(tokens_.size());
    tokens_.push_back(std::move(token));
  }

  bool empty() const { return tokens_.empty(); }

  /// Hands over the text in turn: `take_text(begin, end)` and `take_token(id, begin, end)`.
  template <class TakeText, class TakeToken>
  void split(std::string_view text, TakeText&& take_text, TakeToken&& take_token) const {
    const auto& classes = unicode::Classes::instance();
    std::size_t done = 0;
    for (std::size_t place = 0; place < text.size();) {
      const auto [found, length] = longest(text, place);
      if (found < 0) {
        ++place;
        continue;
      }
      const AddedToken& token = tokens_[static_cast<std::size_t>(found)];
      std::size_t begin = place, end = place + length;
      place = end;
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
        while (end < text.size()) {
          const auto c = unicode::code_point_at(text, end);
          if (!(classes(c.value) & unicode::space)) break;
          end += c.bytes;
        }
      }
      if (done < begin) take_text(done, begin);
      take_token(token.id, begin, end);
      done = end;
    }
    if (done < text.size()) take_text(done, text.size());
  }

 private:
  struct Node {
    char byte;
    std::int32_t child, sibling, token;
  };

  const Node& at(std::int32_t node) const { return nodes_[static_cast<std::size_t>(node)]; }
  std::int32_t add_node(char byte, std::int32_t sibling) {
    nodes_.push_back({byte, -1, sibling, -1});
    return static_cast<std::int32_t>(nodes_.size() - 1);
  }
  std::int32_t find_child(std::int32_t node, char byte) const {
    std::int32_t child = at(node).child;
    while (child >= 0 && at(child).byte != byte) child = at(child).sibling;
    return child;
  }

  /// The longest token that begins at `begin` (-1: none) and its length.
  std::pair<std::int32_t, std::size_t> longest(std::string_view text, std::size_t begin) const {
    std::pair<std::int32_t, std::size_t> best(-1, 0);
    std::int32_t node = roots_[static_cast<unsigned char>(text[begin])];
    for (std::size_t end = begin + 1; node >= 0; ++end) {
      if (at(node).token >= 0) best = {at(node).token, end - begin};
      if (end == text.size()) break;
      node = find_child(node, text[end]);
    }
    return best;
  }

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<std::int32_t, 256> roots_ = [] {
    std::array<std::int32_t, 256> none{};
    none.fill(-1);
    return none;
  }();
};

}  // namespace lora::io
