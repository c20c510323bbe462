#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "lora/core/error.hpp"
#include "lora/core/scalar.hpp"
#include "lora/data/batch.hpp"

namespace lora::data {

/// How a text of more than `cutoff` tokens becomes sequences of which each token is learnt once. A block begins with
/// the text's opening tokens; where it has none, the last token of the block before stands there, to be predicted from.
struct TextBlocks {
  Index cutoff;
  Index opening;  ///< tokens before each text

  /// Blocks of a text of so many tokens, the opening ones included.
  Index count(Index length) const {
    if (length <= cutoff) return 1;
    return (length - shared() + step() - 1) / step();
  }

  /// One of them. Counted from 0.
  Example block(std::span<const std::int32_t> tokens, Index number) const {
    const Index length = std::ssize(tokens), begin = number * step();
    const Index end = std::min(begin + cutoff, length);
    Example example;
    example.tokens.assign(tokens.begin() + begin, tokens.begin() + end);
    example.labels = example.tokens;
    if (number == 0) return example;
    std::copy_n(tokens.begin(), opening, example.tokens.begin());
    std::fill_n(example.labels.begin(), shared(), ignore_index);
    return example;
  }

 private:
  /// Tokens that a block has beside those that it alone learns.
  Index shared() const { return std::max<Index>(opening, 1); }
  Index step() const {
    if (cutoff <= shared())
      fail<ConfigError>("cutoff_len is ", cutoff, "; texts are cut into blocks of at least ", shared() + 1, " tokens");
    return cutoff - shared();
  }
};

}  // namespace lora::data
