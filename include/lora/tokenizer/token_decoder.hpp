#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/tokenizer/unicode.hpp"

namespace lora::tokenizer {

/// What makes a text of tokens as they are written: steps, one after the other, as in the `tokenizers` library.
class TokenDecoder {
 public:
  struct Step {
    /// `replace` makes `to` of each `from` in a token; `bytes` makes text of tokens <0x00> to <0xFF> that follow each
    /// other, or, if all of them together are not valid UTF-8, one U+FFFD of each; `fuse` joins all to one; `strip`
    /// takes up to `count` times `from` away where a token begins; `marks` makes spaces of `from`, but nothing in the
    /// first token if `leading`.
    enum class Kind : std::uint8_t { replace, bytes, fuse, strip, marks };
    Kind kind = Kind::fuse;
    std::string from{}, to{};
    std::size_t count = 0;
    bool leading = false;
  };

  /// At most how many times the bytes of its tokens a text has. Above 2³² it is 2³².
  std::size_t growth() const;

  /// Whether a token's text depends on those behind it, as that of a byte does.
  bool awaits_more(std::string_view token) const;

  /// `from` is not empty.
  void add(Step step) { steps_.push_back(std::move(step)); }

  /// `tokens` in their order, valid UTF-8, and so is the result.
  std::string operator()(std::vector<std::string> tokens) const;

 private:
  std::vector<Step> steps_;
};

/// The byte that a token like <0x0A> stands for, as Rust's u8::from_str_radix reads its digits.
std::optional<char> byte_of_token(std::string_view token);

}  // namespace lora::tokenizer

#ifndef LORA_COMPILED
#  include "lora/tokenizer/token_decoder.ipp"
#endif
