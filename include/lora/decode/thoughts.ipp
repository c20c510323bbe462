#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "lora/core/config.hpp"
#include "lora/decode/thoughts.hpp"
#include "lora/tokenizer/text_stream.hpp"

namespace lora::decode {

LORA_INLINE Thoughts::Thoughts(Begin begin)
    : part_(begin == Begin::absent     ? Part::content
            : begin == Begin::possible ? Part::begin
                                       : Part::reasoning),
      reasoned_(begin == Begin::open) {}

LORA_INLINE Words Thoughts::add(std::string_view text) {
  held_ += text;
  return take(false);
}

LORA_INLINE Words Thoughts::finish() { return take(true); }

LORA_INLINE Words Thoughts::take(bool all) {
  constexpr std::string_view open = "<think>", close = "</think>";
  Words words;
  if (part_ == Part::begin) {
    const std::string_view begun =
        std::string_view(held_).substr(std::min(held_.find_first_not_of("\n"), held_.size()));
    if (begun.starts_with(open)) {
      held_.erase(0, held_.size() - begun.size() + open.size());
      part_ = Part::reasoning;
      reasoned_ = true;
    } else if (all || !open.starts_with(begun)) {
      part_ = Part::content;
    }
  }
  if (part_ == Part::reasoning) {
    if (!began_) held_.erase(0, held_.find_first_not_of('\n'));
    const std::size_t end = held_.find(close);
    const bool ends = end != held_.npos;
    std::size_t sure = ends ? end : held_.size() - (all ? 0 : tokenizer::begun_at_end(held_, close));
    while (sure > 0 && held_[sure - 1] == '\n') --sure;  // given once more of it comes
    words.reasoning = held_.substr(0, sure);
    began_ = began_ || sure > 0;
    held_.erase(0, ends ? end + close.size() : all ? held_.size() : sure);
    if (ends) part_ = Part::gap;
  }
  if (part_ == Part::gap) {
    held_.erase(0, held_.find_first_not_of('\n'));
    if (!held_.empty()) part_ = Part::content;
  }
  if (part_ == Part::content) words.content = std::exchange(held_, {});
  return words;
}

}  // namespace lora::decode
