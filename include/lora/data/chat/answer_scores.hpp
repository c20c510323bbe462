#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/scalar.hpp"
#include "lora/data/chat/chat_template.hpp"
#include "lora/data/chat/chat_text.hpp"
#include "lora/data/chat/sample.hpp"
#include "lora/tokenizer/unicode.hpp"

namespace lora::data {

/// The words of a text in valid UTF-8: runs of letters and digits, those of ASCII in lower case; of Chinese and
/// Japanese each character.
std::vector<std::string> words_of(std::string_view text);

/// ROUGE-L: with the longest common subsequence of the words, of length l,
///   F = 2 p r / (p + r),   p = l / words of the answer,   r = l / words of the reference
/// 0 where they have no word in common.
/// Source   Lin 2004, with β = 1; for ASCII the numbers of Google's rouge_score without stemming
double rouge_l(std::string_view answer, std::string_view reference);

/// How well generated answers fit those of the records.
class AnswerScores {
 public:
  /// The template of conversations decides how calls of tools are written, and whether answers may begin with
  /// reasoning, which is not compared.
  explicit AnswerScores(const std::optional<ChatTemplate>& chat_template);

  struct Score {
    bool exact;  ///< the same but for white space at the ends
    double rouge_l;
  };
  /// The answer that a record has.
  std::string expected(const Sample& sample) const { return sample.answer(quotes_texts_); }
  /// Of an answer to a record that has one.
  Score add(const Sample& sample, std::string_view answer);

  Index answers() const { return answers_; }
  Index exact() const { return exact_; }
  double exact_match() const { return static_cast<double>(exact_) / static_cast<double>(answers_); }
  double rouge_l() const { return rouge_l_ / static_cast<double>(answers_); }

 private:
  std::string_view compared(std::string_view answer) const;

  bool thinks_;
  bool quotes_texts_;
  Index answers_ = 0;
  Index exact_ = 0;
  double rouge_l_ = 0;  // sum
};

}  // namespace lora::data

#ifndef LORA_COMPILED
#  include "lora/data/chat/answer_scores.ipp"
#endif
