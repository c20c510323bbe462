#pragma once

#include "lora/core/config.hpp"
#include "lora/tokenizer/added.hpp"

namespace lora::tokenizer {

LORA_INLINE void AddedTokenFinder::add(AddedToken token) {
  if (token.content.empty()) return;
  if (nodes_.empty()) add_node('\0', none);
  std::int32_t node = root;
  for (auto byte = token.content.rbegin(); byte != token.content.rend(); ++byte) {
    std::int32_t child = find_child(node, *byte);
    if (child == none) {
      child = add_node(*byte, at(node).child);
      at(node).child = child;
      if (node == root) roots_[static_cast<unsigned char>(*byte)] = child;
    }
    node = child;
  }
  at(node).token = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(std::move(token));
  linked_ = false;
}

LORA_INLINE void AddedTokenFinder::finish(bool leave_special) {
  linked_ = true;
  leave_special_ = leave_special;
  if (nodes_.empty()) return;
  std::vector<std::int32_t> queue{root};
  for (std::size_t next = 0; next < queue.size(); ++next) {
    const std::int32_t node = queue[next];
    for (std::int32_t child = at(node).child; child != none; child = at(child).sibling) {
      const std::int32_t back = node == root ? root : follow(at(node).back, at(child).byte);
      at(child).back = back;
      at(child).longest = at(child).token != none ? at(child).token : at(back).longest;
      queue.push_back(child);
    }
  }
}

LORA_INLINE std::int32_t AddedTokenFinder::add_node(char byte, std::int32_t sibling) {
  nodes_.push_back({byte, none, sibling, none, root, none});
  return static_cast<std::int32_t>(nodes_.size() - 1);
}

LORA_INLINE std::int32_t AddedTokenFinder::find_child(std::int32_t node, char byte) const {
  if (node == root) return roots_[static_cast<unsigned char>(byte)];
  std::int32_t child = at(node).child;
  while (child != none && at(child).byte != byte) child = at(child).sibling;
  return child;
}

LORA_INLINE std::int32_t AddedTokenFinder::follow(std::int32_t node, char byte) const {
  for (;; node = at(node).back) {
    const std::int32_t child = find_child(node, byte);
    if (child != none) return child;
    if (node == root) return root;
  }
}

LORA_INLINE std::vector<AddedTokenFinder::Hit> AddedTokenFinder::find_all(std::string_view text) const {
  if (!linked_) fail<Error>("[tokenizer] a text was to be split before AddedTokenFinder::finish");
  std::vector<Hit> hits;
  if (nodes_.empty()) return hits;
  std::int32_t node = root;
  for (std::size_t place = text.size(); place > 0;) {
    --place;
    if (node == root && roots_[static_cast<unsigned char>(text[place])] == none) continue;  // the common case
    node = follow(node, text[place]);
    if (at(node).longest != none) hits.push_back({place, at(node).longest});
  }
  return hits;
}

}  // namespace lora::tokenizer
