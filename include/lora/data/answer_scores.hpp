#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/scalar.hpp"
#include "lora/data/chat_template.hpp"
#include "lora/data/chat_text.hpp"
#include "lora/data/sample.hpp"
#include "lora/tokenizer/unicode.hpp"

namespace lora::data {

namespace detail {

/// Scripts that put no spaces between words: Chinese and Japanese.
inline bool is_word_alone(char32_t c) {
  return (c >= 0x3040 && c <= 0x30FF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x4E00 && c <= 0x9FFF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x20000 && c <= 0x3FFFF);
}

}  // namespace detail

/// The words of a text in valid UTF-8: runs of letters and digits, those of ASCII in lower case; of Chinese and
/// Japanese each character.
inline std::vector<std::string> words_of(std::string_view text) {
  const auto& classes = tokenizer::unicode::Classes::instance();
  std::vector<std::string> words;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const auto c = tokenizer::unicode::code_point_at(text, at);
    const bool alone = detail::is_word_alone(c.value);
    const bool part = (classes(c.value) & (tokenizer::unicode::letter | tokenizer::unicode::number)) != 0;
    if (part) {
      if (!inside || alone) words.emplace_back();
      for (std::size_t i = at; i < at + c.bytes; ++i)
        words.back() += text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] + ('a' - 'A')) : text[i];
    }
    inside = part && !alone;
    at += c.bytes;
  }
  return words;
}

/// ROUGE-L: with the longest common subsequence of the words, of length l,
///   F = 2 p r / (p + r),   p = l / words of the answer,   r = l / words of the reference
/// 0 where they have no word in common.
/// Source   Lin 2004, with β = 1; for ASCII the numbers of Google's rouge_score without stemming
inline double rouge_l(std::string_view answer, std::string_view reference) {
  const std::vector<std::string> a = words_of(answer), b = words_of(reference);
  std::vector<Index> row(b.size() + 1, 0);  // of the table of longest common subsequences
  for (const std::string& word : a) {
    Index diagonal = 0;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const Index above = row[j + 1];
      row[j + 1] = word == b[j] ? diagonal + 1 : std::max(above, row[j]);
      diagonal = above;
    }
  }
  const auto common = static_cast<double>(row.back());
  return common == 0 ? 0 : 2 * common / static_cast<double>(a.size() + b.size());
}

/// How well generated answers fit those of the records.
class AnswerScores {
 public:
  /// The template of conversations decides how calls of tools are written, and whether answers may begin with
  /// reasoning, which is not compared.
  explicit AnswerScores(const std::optional<ChatTemplate>& chat_template)
      : thinks_(chat_template && chat_template->thinks()),
        quotes_texts_(chat_template && chat_template->quotes_texts()) {}

  struct Score {
    bool exact;  ///< the same but for white space at the ends
    double rouge_l;
  };
  /// The answer that a record has.
  std::string expected(const Sample& sample) const { return sample.answer(quotes_texts_); }
  /// Of an answer to a record that has one.
  Score add(const Sample& sample, std::string_view answer) {
    const std::string expected = this->expected(sample);
    const std::string_view given = compared(answer), wanted = compared(expected);
    const Score score{given == wanted, data::rouge_l(given, wanted)};
    ++answers_;
    exact_ += score.exact ? 1 : 0;
    rouge_l_ += score.rouge_l;
    return score;
  }

  Index answers() const { return answers_; }
  Index exact() const { return exact_; }
  double exact_match() const { return static_cast<double>(exact_) / static_cast<double>(answers_); }
  double rouge_l() const { return rouge_l_ / static_cast<double>(answers_); }

 private:
  std::string_view compared(std::string_view answer) const {
    return strip(thinks_ ? ChatTemplate::without_thoughts(answer) : answer);
  }

  bool thinks_;
  bool quotes_texts_;
  Index answers_ = 0;
  Index exact_ = 0;
  double rouge_l_ = 0;  // sum
};

}  // namespace lora::data
