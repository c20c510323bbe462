#pragma once

#include <string>
#include <string_view>

namespace lora::decode {

/// A part of an answer, of which one or both may be empty.
struct Words {
  std::string reasoning{};
  std::string content{};
};

/// Parts the reasoning of a growing answer from the rest: what stands between <think>, with which the answer begins,
/// and the first </think>, without the line ends around, and what follows, without those before it.
class Thoughts {
 public:
  enum class Begin {
    absent,    ///< all is content
    possible,  ///< the answer may begin with <think>
    open,      ///< the prompt has opened the reasoning
  };

  explicit Thoughts(Begin begin);

  /// What is certain with this text.
  Words add(std::string_view text);
  /// What was held back, of an answer that has ended.
  Words finish();

  /// Whether the answer has reasoning, be it empty.
  bool reasoned() const { return reasoned_; }

 private:
  enum class Part { begin, reasoning, gap, content };

  Words take(bool all);

  Part part_;
  bool reasoned_;
  bool began_ = false;  // whether some of the reasoning was given
  std::string held_;
};

}  // namespace lora::decode

#ifndef LORA_COMPILED
#  include "lora/decode/thoughts.ipp"
#endif
