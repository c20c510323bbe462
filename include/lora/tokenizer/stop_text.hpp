#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lora/tokenizer/tokenizer.hpp"

namespace lora::tokenizer {

/// The text before the stop text that begins first.
inline std::string cut_at_stops(std::string text, std::span<const std::string> stops) {
  std::size_t end = text.size();
  for (const std::string& stop : stops)
    if (!stop.empty()) end = std::min(end, text.find(stop));
  text.resize(end);
  return text;
}

/// Watches a growing answer for stop texts. For each token only as much of the end is decoded as a stop text can span:
/// decoding everything would take quadratic time.
class StopWatch {
 public:
  StopWatch(const Tokenizer& tokenizer, std::span<const std::string> stops) : tokenizer_(&tokenizer), stops_(stops) {
    std::size_t longest = 0;
    for (const std::string& stop : stops) longest = std::max(longest, stop.size());
    // A byte that is no character decodes to three bytes; the rest is for characters cut by the window's edge.
    window_bytes_ = 3 * longest + 64;
  }

  /// Adds a token and returns whether the answer has a stop text.
  bool add(std::int32_t token) {
    tokens_.push_back(token);
    sizes_.push_back(text_of(std::span(tokens_).last(1)).size());
    bytes_ += sizes_.back();
    while (bytes_ - sizes_[first_] >= window_bytes_) bytes_ -= sizes_[first_++];
    if (!holds_stop(text_of(std::span(tokens_).subspan(first_)))) return false;
    return first_ == 0 || holds_stop(text_of(tokens_));  // the window may begin within a character
  }

 private:
  std::string text_of(std::span<const std::int32_t> tokens) const { return tokenizer_->decode(tokens, true); }
  bool holds_stop(const std::string& text) const { return cut_at_stops(text, stops_).size() < text.size(); }

  const Tokenizer* tokenizer_;
  std::span<const std::string> stops_;
  std::size_t window_bytes_ = 0, bytes_ = 0, first_ = 0;  // first_ token of the window
  std::vector<std::int32_t> tokens_;
  std::vector<std::size_t> sizes_;  // that each token decodes to alone
};

}  // namespace lora::tokenizer
