#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/data/batches/batch.hpp"
#include "lora/data/chat/chat_template.hpp"
#include "lora/data/chat/sample.hpp"
#include "lora/tokenizer/tokenizer.hpp"

namespace lora::data {

/// The prompt of a record, as the user wrote it.
inline std::string prompt_of(const Sample& sample, const tokenizer::Tokenizer& tokenizer) {
  if (sample.kind == Sample::Kind::text) return sample.text;
  if (sample.kind == Sample::Kind::tokens) return tokenizer.decode(sample.tokens);
  return sample.prompt();
}

struct EncodeOptions {
  Index cutoff_len = 2048;
  bool train_on_prompt = false;
  bool train_on_last_turn_only = false;
  RenderOptions render{};
  Index vocab_size = 0;  ///< larger ids are errors; 0: not checked
};

/// Each marker that stands in every rendering must be one token.
/// Throws   FormatError that names the marker and what would declare it
void expect_markers(const tokenizer::Tokenizer& tokenizer, const ChatTemplate& chat_template);

/// The same for those of reasoning and tools that stand in the rendering of this record.
void expect_markers(const tokenizer::Tokenizer& tokenizer, const ChatTemplate& chat_template, const Sample& sample,
                    std::string_view rendering);

/// The token that ends a text; empty if the tokenizer names none.
std::string end_of_text(const tokenizer::Tokenizer& tokenizer);

/// The template with this text, known or interpreted; nothing if it is neither, and then `why` is told.
std::optional<ChatTemplate> find_template(std::string_view text, const tokenizer::Tokenizer& tokenizer,
                                          std::string* why = nullptr);

/// The template of that name, or for "auto" the model's own: known by its text, or else interpreted.
/// Throws   ConfigError that lists the choices; FormatError for a marker that the tokenizer cuts into pieces
ChatTemplate choose_template(std::string_view name, const tokenizer::Tokenizer& tokenizer);

/// Tokenizes a rendering. The tokenizer's opening token, if any, is added unless the template writes one.
tokenizer::Tokenizer::Encoding encode_rendering(const tokenizer::Tokenizer& tokenizer,
                                                const ChatTemplate& chat_template, std::string_view text);

/// Cuts off what lies behind the first `most` tokens.
void truncate(Example& example, Index most);

/// Turns records into tokens and labels. A rendering is tokenized as a whole, and a token is labeled if it begins
/// inside an answer, including its end-of-turn token. Thread-safe.
class Encoder {
 public:
  /// Token records need neither tokenizer nor template; texts need no template.
  Encoder(const tokenizer::Tokenizer* tokenizer, std::optional<ChatTemplate> chat_template, EncodeOptions options);

  const EncodeOptions& options() const { return options_; }
  const std::optional<ChatTemplate>& chat_template() const { return template_; }

  /// Encodes a record for training or evaluation. Throws FormatError with file and line.
  Example operator()(const Sample& sample) const;

  /// All tokens of a text record, without truncation.
  std::vector<std::int32_t> whole_text(const Sample& sample) const;
  /// At least as many tokens as a text of so many bytes has, with those that are added.
  Index most_tokens(std::size_t bytes) const;
  /// Number of tokens added before every text.
  Index text_opening() const { return tokenizer_ ? std::ssize(tokenizer_->opening()) : 0; }

  /// Whether the tokenizer has ids outside of the model's vocabulary.
  bool may_pass_vocabulary() const;

  /// Finds the errors that encoding the record would, unless `may_pass_vocabulary`, in a fraction of the time. Returns
  /// a size by which records of a kind can be compared: the bytes of the text, or the number of tokens.
  std::size_t check(const Sample& sample) const;

  /// The prompt for generation: the turns before the last answer and a generation prompt, a text, or the tokens.
  std::vector<std::int32_t> prompt(const Sample& sample) const;

 private:
  const tokenizer::Tokenizer& tokenizer(const Sample& sample) const;

  /// Adds the tokenizer's opening token, if any, before a text and, if it is whole, the end-of-text token after it.
  std::vector<std::int32_t> text_tokens(const Sample& sample, bool whole) const;

  Rendering render(const Sample& sample, std::span<const Message> messages, const RenderOptions& options) const;

  void encode_messages(const Sample& sample, Example& example) const;

  /// train_on_prompt learns every turn but the answers that are marked.
  void expect_marks_hold(const Sample& sample) const;

  void check_ids(std::span<const std::int32_t> ids, const Sample& sample) const;
  void check_labels(std::span<const std::int32_t> labels, const Sample& sample) const;
  void check_id(std::int32_t id, const Sample& sample) const;

  const tokenizer::Tokenizer* tokenizer_;
  std::optional<ChatTemplate> template_;
  EncodeOptions options_;
};

/// Statistics of a data set, logged before training. In a large one only some records are encoded; sums are then
/// estimates.
class EncodeSummary {
 public:
  void add(const Example& example);
  /// Counts a record that was not encoded.
  void pass_over(bool unanswered = false);
  /// Adds the length of a record that is known to exist.
  void reaches(Index length, Index record);

  Index records() const { return records_; }
  /// Sets the number of records, if long texts are counted by their blocks.
  void cut_from(Index records) { cut_from_ = records; }
  /// Whether every record was encoded, so that the sums are exact.
  bool complete() const { return records_ == encoded(); }
  Index tokens() const { return scaled(tokens_); }
  Index labeled() const { return scaled(labeled_); }
  Index truncated() const { return scaled(truncated_); }
  Index left_out() const { return scaled(left_out_); }  ///< records without a label, but with an answer
  Index lost() const { return scaled(lost_); }          ///< those that had labels past cutoff_len
  Index unanswered() const { return unanswered_; }      ///< records left out because their answer is empty

  /// A quantile of the lengths of the encoded records; share 1 is the longest known length.
  Index length_at(double share) const;
  /// A record of the longest known length.
  Index longest_record() const { return longest_record_; }

  std::string text() const;

 private:
  Index encoded() const { return static_cast<Index>(lengths_.size()); }
  Index scaled(Index sum) const;

  std::vector<Index> lengths_;
  Index longest_ = 0;
  Index longest_record_ = 0;
  Index records_ = 0;
  Index cut_from_ = 0;
  Index tokens_ = 0;
  Index labeled_ = 0;
  Index truncated_ = 0;
  Index left_out_ = 0;
  Index lost_ = 0;
  Index unanswered_ = 0;
};

/// A record as text with labeled tokens between ⟦ and ⟧; without a tokenizer, as ids.
std::string preview(const Example& example, const tokenizer::Tokenizer* tokenizer);

}  // namespace lora::data

#ifndef LORA_COMPILED
#  include "lora/data/batches/encode.ipp"
#endif
