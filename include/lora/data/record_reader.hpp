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
#include "lora/data/sample.hpp"
#include "lora/io/json.hpp"

namespace lora::data {

struct DatasetOptions {
  std::string text_column = "text";
  std::optional<Index> max_samples{};  ///< the first ones
  bool need_answer = true;             ///< false where records are only asked, not learnt from
  bool skip_empty_answers = false;     ///< an empty answer or text is left out instead of being an error
};

namespace detail {

/// The records of one kind: the field that tells them, and all others that are read.
struct RecordShape {
  std::string_view field;
  Sample::Kind kind;
  std::array<std::string_view, 4> others;
};

constexpr RecordShape record_shapes[] = {
    {"input_ids", Sample::Kind::tokens, {"labels", "attention_mask"}},
    {"messages", Sample::Kind::messages, {"system"}},
    {"conversations", Sample::Kind::messages, {"system"}},
    {"instruction", Sample::Kind::messages, {"input", "output", "system", "history"}},
    {"prompt", Sample::Kind::messages, {"completion", "system", "history"}},
    {"question", Sample::Kind::messages, {"answer", "system", "history"}},
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

/// Nothing, in one of the ways in which data sets write it.
inline bool is_nothing(const io::Json& value) {
  if (value.is_null()) return true;
  if (!value.is_string()) return value.is_structured() && value.empty();
  std::string text = value.get<std::string>();
  text.erase(std::remove_if(text.begin(), text.end(), [](char c) { return c == ' ' || c == '\n'; }), text.end());
  return text.empty() || text == "[]" || text == "{}" || text == "null";
}

/// Reads one record. A field is read, or it is refused since without it the record would mean something else, or it is
/// listed as not used.
class RecordReader {
 public:
  /// Throws   FormatError if it is no record of a known kind
  RecordReader(const io::Json& record, const std::string& where, const DatasetOptions& options)
      : record_(record), where_(where), options_(options) {
    if (!record_.is_object())
      fail<FormatError>(where_, ": expected a record {...}, found ", std::string_view(record_.type_name()));
    if (has("chosen") && has("rejected"))
      fail<FormatError>(where_, ": chosen and rejected are preference data, which are not supported; expected one ",
                        "answer, such as prompt and completion");
    for (const RecordShape& shape : record_shapes)
      if (has(shape.field)) {
        shape_ = &shape;
        return;
      }
    if (!has(options_.text_column)) fail_unknown();
  }

  /// Whether some kind of record is told by this field.
  static bool knows(std::string_view field) {
    return std::any_of(std::begin(record_shapes), std::end(record_shapes),
                       [&](const RecordShape& shape) { return shape.field == field; });
  }

  Sample::Kind kind() const { return shape_ ? shape_->kind : Sample::Kind::text; }

  Sample read() {
    Sample sample;
    sample.kind = kind();
    check_fields();
    sample.learnt = weight_of(record_, where_);
    if (shape_ == nullptr) {
      sample.text = text_of(options_.text_column);
      if (sample.text.empty()) leave_out(sample, "the text is empty");
    } else if (sample.kind == Sample::Kind::tokens) {
      read_tokens(sample);
    } else if (shape_->field == "messages" || shape_->field == "conversations") {
      read_turns(sample);
    } else {
      read_pair(sample);
    }
    return sample;
  }

  /// The fields that play no part, those of turns as messages[].name.
  const std::vector<std::string>& unused() const { return unused_; }

 private:
  bool has(std::string_view field) const { return io::json_find(record_, field) != nullptr; }
  std::string text_of(std::string_view field) const { return io::json_at<std::string>(record_, field, where_); }
  std::string text_or_empty(std::string_view field) const { return has(field) ? text_of(field) : std::string(); }

  std::string fields() const {
    constexpr std::size_t most = 20;
    std::string list;
    std::size_t count = 0;
    for (const auto& [field, value] : io::json_fields(record_)) {
      if (++count > most) return list + ", ...";
      list += (list.empty() ? "" : ", ") + field;
    }
    return list.empty() ? "(none)" : list;
  }

  [[noreturn]] void fail_unknown() const {
    std::string whole;
    for (const auto& [field, value] : io::json_fields(record_))
      if (whole.empty() && value.is_array() && !value.empty() && value.front().is_object())
        whole = concat("; ", field, " holds records: a file is such an array itself, or has a record per line");
    fail<FormatError>(where_, ": a record with the keys ", fields(),
                      "; expected instruction and output, messages, conversations, prompt and completion, question and "
                      "answer, input_ids and labels, or ",
                      options_.text_column, whole);
  }

  static std::string_view be(std::string_view field) { return field.ends_with('s') ? " are" : " is"; }

  static bool is_media(std::string_view field) {
    for (const std::string_view name : {"images", "image", "videos", "video", "audios", "audio"})
      if (field == name) return true;
    return false;
  }

  /// false, in one of the ways in which files spell it.
  static bool marks_bad_answer(const io::Json& value) {
    if (value.is_string()) {
      const auto& word = value.get_ref<const std::string&>();
      return word == "false" || word == "False" || word == "0";
    }
    return (value.is_boolean() && !value.get<bool>()) || (value.is_number() && value.get<double>() == 0);
  }

  void check_fields() {
    for (const auto& [field, value] : io::json_fields(record_)) {
      if (field == "weight" || field == (shape_ ? shape_->field : std::string_view(options_.text_column))) continue;
      if (shape_ && std::find(shape_->others.begin(), shape_->others.end(), field) != shape_->others.end()) continue;
      if (shape_ && (field == "label" || field == "kto_tag")) {
        if (value.is_boolean() && value.get<bool>()) continue;  // a good answer
        if (marks_bad_answer(value))
          fail<FormatError>(where_, ": \"", field, "\" is ", io::to_text(value, -1), ", which marks a bad answer ",
                            "(preference data); expected good answers only");
      }
      if (field == "tools" || is_media(field)) {
        if (!is_nothing(value)) fail<FormatError>(where_, ": ", field, be(field), " not supported");
        continue;
      }
      unused_.push_back(field);
    }
  }

  /// "weight" as OpenAI's files have it: 1, or 0 for what is not learnt.
  static bool weight_of(const io::Json& object, const std::string& place) {
    const io::Json* weight = io::json_find(object, "weight");
    if (weight == nullptr) return true;
    const double value = weight->is_number() ? weight->get<double>() : -1;
    if (value != 0 && value != 1)
      fail<FormatError>(place, ": \"weight\" is ", io::to_text(*weight, -1), "; expected 0 or 1");
    return value == 1;
  }

  /// What there is nothing to learn from, although it has the field for it.
  template <class... Reason>
  void leave_out(Sample& sample, const Reason&... reason) const {
    if (!options_.need_answer) return;
    if (!options_.skip_empty_answers) fail<FormatError>(where_, ": ", reason...);
    sample.unanswered = true;
  }

  void read_tokens(Sample& sample) const {
    sample.tokens = io::json_at<std::vector<std::int32_t>>(record_, "input_ids", where_);
    if (has("labels")) {
      sample.labels = io::json_at<std::vector<std::int32_t>>(record_, "labels", where_);
    } else if (options_.need_answer) {
      fail<FormatError>(where_, ": the record has input_ids but no labels");
    } else {
      sample.labels.assign(sample.tokens.size(), ignore_index);
    }
    if (sample.labels.size() != sample.tokens.size())
      fail<FormatError>(where_, ": ", sample.tokens.size(), " input_ids but ", sample.labels.size(), " labels");
    if (sample.tokens.empty()) fail<FormatError>(where_, ": input_ids is empty");
    for (const std::int32_t label : sample.labels)
      if (label < 0 && label != ignore_index)
        fail<FormatError>(where_, ": the label ", label, "; expected an id or ", ignore_index);
    if (!has("attention_mask")) return;
    const auto mask = io::json_at<std::vector<std::int32_t>>(record_, "attention_mask", where_);
    if (mask.size() != sample.tokens.size() || std::count(mask.begin(), mask.end(), 1) != std::ssize(mask))
      fail<FormatError>(where_, ": attention_mask hides tokens; expected records without padding");
  }

  /// Alpaca's records and pairs: a question, perhaps with a system text and earlier rounds, and its answer.
  void read_pair(Sample& sample) const {
    const std::string_view answer = shape_->field == "instruction" ? shape_->others[1] : shape_->others[0];
    if (has("system") && !text_of("system").empty()) sample.messages.push_back({"system", text_of("system")});
    if (const io::Json* history = io::json_find(record_, "history")) {
      const auto rounds = io::json_as<std::vector<std::vector<std::string>>>(*history, where_, "history");
      for (const auto& round : rounds) {
        if (round.size() != 2) fail<FormatError>(where_, ": a round of history has ", round.size(), " texts, not 2");
        sample.messages.push_back({"user", round[0]});
        sample.messages.push_back({"assistant", round[1]});
      }
    }
    const std::string input = shape_->field == "instruction" ? text_or_empty("input") : std::string();
    sample.messages.push_back({"user", text_of(shape_->field) + (input.empty() ? "" : "\n" + input)});
    // The answers of the history do not stand in for this record's own.
    if (options_.need_answer && !record_.contains(answer))
      fail<FormatError>(where_, ": the record has no answer; expected the field ", answer, ", found ", fields());
    if (text_or_empty(answer).empty()) leave_out(sample, "the record has no answer; \"", answer, "\" is empty");
    if (has(answer)) sample.messages.push_back({"assistant", text_of(answer)});
  }

  void read_turns(Sample& sample) {
    const io::Json& turns = *io::json_find(record_, shape_->field);
    if (!turns.is_array()) fail<FormatError>(where_, ": \"", shape_->field, "\" must be an array");
    if (has("system") && !text_of("system").empty()) sample.messages.push_back({"system", text_of("system")});
    for (const io::Json& turn : turns)
      sample.messages.push_back(read_turn(turn, concat(where_, ": ", shape_->field, "[", &turn - &turns[0], "]")));
    if (sample.messages.empty()) fail<FormatError>(where_, ": the conversation has no turns");
    const bool answered = std::any_of(sample.messages.begin(), sample.messages.end(), [](const Message& message) {
      return message.role == "assistant" && !message.content.empty();
    });
    if (!answered) leave_out(sample, "the record has no answer; expected a turn of the assistant with a text");
  }

  Message read_turn(const io::Json& turn, const std::string& place) {
    if (!turn.is_object()) fail<FormatError>(place, ": expected an object with role and content");
    const bool sharegpt = io::json_find(turn, "from") != nullptr;
    const std::string_view role = sharegpt ? "from" : "role", content = sharegpt ? "value" : "content";
    for (const auto& [field, value] : io::json_fields(turn)) {
      if (field == role || field == content || field == "weight" || field == "reasoning_content") continue;
      if (field == "tool_calls" || field == "function_call" || is_media(field)) {
        if (!is_nothing(value)) fail<FormatError>(place, ": ", field, be(field), " not supported");
        continue;
      }
      unused_.push_back(concat(shape_->field, "[].", field));
    }
    Message message;
    message.role = role_of(io::json_at<std::string>(turn, role, place), place);
    message.content = io::json_at<std::string>(turn, content, place);
    message.reasoning = io::json_get<std::string>(turn, "reasoning_content", place);
    message.learnt = weight_of(turn, place);
    if (io::json_find(turn, "weight") != nullptr && message.role != "assistant")
      fail<FormatError>(place, ": \"weight\" stands in a turn of the ", message.role,
                        "; expected it in the assistant's turns only");
    return message;
  }

  static std::string role_of(const std::string& name, const std::string& place) {
    for (const char* role : {"system", "user", "assistant", "tool"})
      if (name == role) return name;
    if (name == "human") return "user";
    if (name == "gpt") return "assistant";
    if (name == "observation") return "tool";
    fail<FormatError>(place, ": the role \"", name,
                      "\"; expected system, user, assistant, tool, human, gpt or observation");
  }

  const io::Json& record_;
  const std::string& where_;
  const DatasetOptions& options_;
  const RecordShape* shape_ = nullptr;  // null: a text
  std::vector<std::string> unused_;
};

}  // namespace detail
}  // namespace lora::data
