#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lora/jinja/limits.hpp"

namespace lora::jinja {

struct Token {
  enum class Kind : std::uint8_t {
    data,
    output_begin,
    output_end,
    block_begin,
    block_end,
    name,
    text,
    whole,
    real,
    sign,
    end
  };

  Kind kind;
  Place place;
  std::string text{};  ///< of data and texts what they mean, else as it stands there
  std::int64_t whole = 0;
  double real = 0;
};

/// A template's text as tokens, without comments, the white space that it does not write, and raw's tags.
/// `name`: of the template in errors.
/// Throws   FormatError with the place
std::vector<Token> tokens_of(std::string_view text, const std::string& name);

}  // namespace lora::jinja

#ifndef LORA_COMPILED
#  include "lora/jinja/lexer.ipp"
#endif
