#pragma once

#include "lora/core/config.hpp"
#include "lora/core/format.hpp"
#include "lora/data/chat/answer_scores.hpp"

namespace lora::data::detail {

/// Scripts that put no spaces between words: Chinese and Japanese.
LORA_INLINE bool is_word_alone(char32_t c) {
  return (c >= 0x3040 && c <= 0x30FF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x4E00 && c <= 0x9FFF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x20000 && c <= 0x3FFFF);
}

}  // namespace lora::data::detail

namespace lora::data {

LORA_INLINE std::vector<std::string> words_of(std::string_view text) {
  const auto& classes = tokenizer::unicode::Classes::instance();
  std::vector<std::string> words;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const auto c = tokenizer::unicode::code_point_at(text, at);
    const bool alone = detail::is_word_alone(c.value);
    const bool part = (classes(c.value) & (tokenizer::unicode::letter | tokenizer::unicode::number)) != 0;
    if (part) {
      if (!inside || alone) words.emplace_back();
      for (std::size_t i = at; i < at + c.bytes; ++i) words.back() += ascii_lower(text[i]);
    }
    inside = part && !alone;
    at += c.bytes;
  }
  return words;
}

LORA_INLINE double rouge_l(std::string_view answer, std::string_view reference) {
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

LORA_INLINE AnswerScores::AnswerScores(const std::optional<ChatTemplate>& chat_template)
    : thinks_(chat_template && chat_template->thinks()),
      quotes_texts_(chat_template && chat_template->quotes_texts()) {}

LORA_INLINE AnswerScores::Score AnswerScores::add(const Sample& sample, std::string_view answer) {
  const std::string expected = this->expected(sample);
  const std::string_view given = compared(answer), wanted = compared(expected);
  const Score score{given == wanted, data::rouge_l(given, wanted)};
  ++answers_;
  exact_ += score.exact ? 1 : 0;
  rouge_l_ += score.rouge_l;
  return score;
}

LORA_INLINE std::string_view AnswerScores::compared(std::string_view answer) const {
  return strip(thinks_ ? ChatTemplate::without_thoughts(answer) : answer);
}

}  // namespace lora::data
