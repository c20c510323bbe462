#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "lora/core/error.hpp"
#include "lora/core/scalar.hpp"
#include "lora/data/batches/batch.hpp"

namespace lora::data {

/// Splits a text of more than `cutoff` tokens into blocks so that each token is labeled once. A block begins with the
/// text's opening tokens or, without any, with the last token of the previous block, as context.
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
  /// Tokens at the beginning of a block that are only context.
  Index shared() const { return std::max<Index>(opening, 1); }
  Index step() const {
    if (cutoff <= shared())
      fail<ConfigError>("cutoff_len is ", cutoff, "; texts are cut into blocks of at least ", shared() + 1, " tokens");
    return cutoff - shared();
  }
};

}  // namespace lora::data
