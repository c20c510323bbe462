#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/ignore_index.hpp"
#include "lora/data/chat/sample.hpp"
#include "lora/data/chat/tool_reader.hpp"
#include "lora/data/records/dataset_options.hpp"
#include "lora/data/records/learning_marks.hpp"
#include "lora/io/formats/json_view.hpp"

namespace lora::data {

namespace detail {

/// A format of records: the field that identifies it, and the other fields that are read.
struct RecordShape {
  std::string_view field;
  Sample::Kind kind;
  std::array<std::string_view, 4> others;
};

constexpr std::string_view what_it_is(Sample::Kind kind) {
  switch (kind) {
    case Sample::Kind::messages:
      return "a conversation";
    case Sample::Kind::text:
      return "a text";
    case Sample::Kind::tokens:
      break;
  }
  return "tokens";
}

/// Reads one record. Every field is either read, or an error if ignoring it would change the record's meaning, or
/// listed as unused.
class RecordReader {
 public:
  /// Throws   FormatError if it is no record of a known kind
  RecordReader(const io::Json& record, const std::string& where, const DatasetOptions& options);

  /// Whether this field identifies a format of records.
  static bool knows(std::string_view field);

  /// Whether records of this one's format are known by this field.
  bool identifies(std::string_view field) const { return shape_ && shape_->field == field; }
  /// Whether it is that field, or another one of the format; tools and what says what is learned are not among these.
  bool reads(std::string_view field) const;
  /// Whether the user says what a field is: the class of a record, or its text.
  bool has_meaning(std::string_view field) const;

  Sample::Kind kind() const { return shape_ ? shape_->kind : Sample::Kind::text; }

  Sample read();

  /// The unused fields; those of turns as messages[].name.
  const std::vector<std::string>& unused() const { return unused_; }

 private:
  std::string text_of(std::string_view field) const { return record_.at<std::string>(field); }
  std::string text_or_empty(std::string_view field) const { return record_.get<std::string>(field).value_or(""); }

  std::string fields() const;

  [[noreturn]] void fail_unknown() const;

  /// A text, or a number or truth value as it is written.
  std::optional<std::string> label() const;

  static std::string_view be(std::string_view field) { return field.ends_with('s') ? " are" : " is"; }

  static bool is_media(std::string_view field);

  /// Whether a value is false, in one of the ways in which data sets write that.
  static bool marks_bad_answer(const io::Json& value);

  void check_fields();

  /// Handles a record whose answer is empty.
  template <class... Reason>
  void leave_out(Sample& sample, const Reason&... reason) const {
    if (!options_.need_answer) return;
    if (!options_.skip_empty_answers) record_.fail(reason...);
    sample.unanswered = true;
  }

  void read_tokens(Sample& sample) const;

  /// Alpaca records and prompt/answer pairs: a question, optionally with a system text and a history, and its answer.
  void read_pair(Sample& sample) const;

  void read_history(Sample& sample) const;

  /// "system", or "system_prompt" as ms-swift's and OpenOrca's files have it.
  void read_system(Sample& sample) const;

  bool is_list(std::string_view field) const;

  /// TRL's conversational prompt and completion: of the turns the completion's are learned, and none of the prompt's.
  void read_turns_of_pair(Sample& sample);

  void read_turns(Sample& sample);

  /// `has_system`: whether none of the turns may be the system's.
  void add_turns(Sample& sample, std::string_view field, bool has_system);

  void expect_answer(Sample& sample, std::size_t first) const;

  Message read_turn(const io::JsonView& turn, std::string_view list);

  /// The field that the turn has, of the two names that it may have.
  static std::string_view one_of(const io::JsonView& turn, std::string_view first, std::string_view second,
                                 bool expects_first = false);

  /// A text, or a list of one part that is a text, as OpenAI writes it. How several would be joined differs between
  /// templates.
  static std::string content_of(const io::JsonView& turn, std::string_view field);

  CallReader calls_of(std::string_view list, std::string_view field);

  static std::string role_of(const io::JsonView& turn, const std::string& name);

  io::JsonView record_;
  const DatasetOptions& options_;
  const RecordShape* shape_ = nullptr;  // null: a text
  std::vector<std::string> unused_;
};

}  // namespace detail
}  // namespace lora::data

#ifndef LORA_COMPILED
#  include "lora/data/records/record_reader.ipp"
#endif
