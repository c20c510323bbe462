#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
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

/// How many bytes at the end of a text may be the begin of `word`, which may be longer than the text.
inline std::size_t begun_at_end(std::string_view text, std::string_view word) {
  if (word.empty()) return 0;
  for (std::size_t size = std::min(text.size(), word.size() - 1); size > 0; --size)
    if (text.ends_with(word.substr(0, size))) return size;
  return 0;
}

/// The text of a growing answer, token by token: in whole characters, and up to the first stop text. All that it gives
/// together is what decoding all tokens does, but for spaces that a later token would remove, see
/// clean_up_tokenization_spaces. Byte tokens side by side are given when the last of them is known: all of them are
/// characters, or none is. For each token only the last few are decoded.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer, std::span<const std::string> stops = {})
      : tokenizer_(&tokenizer), stops_(stops) {}

  /// The text that is certain with this token.
  std::string add(std::int32_t token) {
    if (stopped_) return {};
    tokens_.push_back(token);
    if (tokenizer_->awaits_more(token, true)) return {};
    std::string text = tokenizer_->decode(tokens_, true);
    constexpr std::string_view unfinished = "\uFFFD";
    if (text.size() <= shown_.size() || text.ends_with(unfinished)) return {};
    text = without_shown(std::move(text));
    tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(context_));
    context_ = tokens_.size();
    shown_ = tokenizer_->decode(tokens_, true);
    return release(text, false);
  }

  /// What was held back, of an answer that has ended.
  std::string finish() {
    if (stopped_) return {};
    const std::string text = without_shown(tokenizer_->decode(tokens_, true));
    tokens_.clear();
    shown_.clear();
    context_ = 0;
    return release(text, true);
  }

  /// Whether a stop text has come.
  bool stopped() const { return stopped_; }

 private:
  /// What the tokens after the context add to the text of all.
  std::string without_shown(std::string text) const {
    if (text.starts_with(shown_)) return text.erase(0, shown_.size());
    // Bytes that end in the middle of a character have changed what those before them decode to.
    return tokenizer_->decode(std::span(tokens_).subspan(context_), true);
  }

  std::string release(std::string_view text, bool all) {
    held_ += text;
    std::string ready = cut_at_stops(held_, stops_);
    stopped_ = ready.size() < held_.size();
    std::size_t kept = 0;
    if (!stopped_ && !all)
      for (const std::string& stop : stops_) kept = std::max(kept, begun_at_end(held_, stop));
    ready.resize(ready.size() - kept);
    held_.erase(0, held_.size() - kept);
    return ready;
  }

  const Tokenizer* tokenizer_;
  std::span<const std::string> stops_;
  std::vector<std::int32_t> tokens_;  // those whose text was given last, as context, and those whose text was not
  std::size_t context_ = 0;
  std::string shown_;  // text of the context
  std::string held_;   // text that may begin a stop
  bool stopped_ = false;
};

}  // namespace lora::tokenizer
