#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/tokenizer/unicode.hpp"
#include "lora/tokenizer/unicode_nfc.hpp"

namespace lora::tokenizer {

/// How a text is rewritten before it is cut into words: steps, one after the other, as in the `tokenizers` library.
class Normalizer {
 public:
  struct Step {
    /// `nfc`; `prepend` puts `to` before a text; `mark` does so before one that doesn't begin with it, `mark_first`
    /// only where the text is the first part of a whole; `replace` makes `to` of each `from`, from left to right. An
    /// empty text stays empty.
    enum class Kind : std::uint8_t { nfc, prepend, mark, mark_first, replace };
    Kind kind = Kind::nfc;
    std::string from{}, to{};
  };

  /// `from` of a replacement is not empty.
  void add(Step step) { steps_.push_back(std::move(step)); }

  bool empty() const { return steps_.empty(); }
  bool is_nfc() const { return steps_.size() == 1 && steps_[0].kind == Step::Kind::nfc; }

  /// Whether the text may change.
  bool changes(std::string_view text) const;

  /// The text after all steps. `first`: it is the first part of a whole, see Step. Offsets: what is put before a text
  /// is where the text begins, what replaces something where its last code point began; else as unicode::to_nfc says.
  unicode::Normalized operator()(std::string_view text, bool first = true) const;

  /// At most how many times its bytes a text has afterward that had `growth` times as many before. Above 2³² it is
  /// 2³².
  std::size_t growth(std::size_t growth = 1) const;

  /// What it does in words that no other has, empty if nothing: it is part of fingerprints.
  std::string text() const;

 private:
  std::vector<Step> steps_;
};

}  // namespace lora::tokenizer

#ifndef LORA_COMPILED
#  include "lora/tokenizer/normalizer.ipp"
#endif
