#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/data/chat_template.hpp"
#include "lora/io/json.hpp"

namespace lora::data {

/// One record of a data file: a conversation, a text, or tokens.
struct Sample {
  enum class Kind { messages, text, tokens };

  Kind kind = Kind::messages;
  std::vector<Message> messages{};
  std::string text{};
  std::vector<std::int32_t> tokens{};
  std::vector<std::int32_t> labels{};  ///< of tokens: the same length, −100 where ignored, not shifted
  std::string where{};                 ///< file:line, for errors
  Index record = 0;                    ///< its number in the data set, from 0

  /// The turns before the last answer: what a model is asked.
  std::vector<Message> question() const {
    std::vector<Message> turns = messages;
    while (!turns.empty() && turns.back().role == "assistant") turns.pop_back();
    return turns;
  }
  /// The content of the last turn if it is an assistant's, else empty.
  std::string_view answer() const {
    return messages.empty() || messages.back().role != "assistant" ? "" : std::string_view(messages.back().content);
  }
};

namespace detail {

/// Reads the kinds of record; one per JSON object, told apart by their keys.
class RecordReader {
 public:
  RecordReader(const io::Json& record, const std::string& where, std::string_view text_column, bool need_answer)
      : record_(record), where_(where), text_column_(text_column), need_answer_(need_answer) {}

  Sample read() const {
    if (!record_.is_object())
      fail<FormatError>(where_, ": expected a record {...}, found ", std::string_view(record_.type_name()));
    Sample sample;
    if (has("input_ids")) {
      read_tokens(sample);
    } else if (has("messages")) {
      read_turns(sample, "messages");
    } else if (has("conversations")) {
      read_turns(sample, "conversations");
    } else if (has("instruction")) {
      read_alpaca(sample);
    } else if (has("prompt")) {
      read_pair(sample, "prompt", "completion");
    } else if (has("question")) {
      read_pair(sample, "question", "answer");
    } else if (has(text_column_)) {
      sample.kind = Sample::Kind::text;
      sample.text = text_of(text_column_);
      if (need_answer_ && sample.text.empty()) fail<FormatError>(where_, ": the text is empty");
    } else {
      fail_unknown();
    }
    if (sample.kind == Sample::Kind::messages) check_answer(sample);
    return sample;
  }

 private:
  bool has(std::string_view key) const { return io::json_find(record_, key) != nullptr; }
  std::string text_of(std::string_view key) const { return io::json_at<std::string>(record_, key, where_); }
  std::string text_or_empty(std::string_view key) const { return has(key) ? text_of(key) : std::string(); }

  [[noreturn]] void fail_unknown() const {
    std::string keys;
    for (const auto& [key, value] : io::json_fields(record_)) keys += (keys.empty() ? "" : ", ") + key;
    fail<FormatError>(where_, ": a record with the keys ", keys.empty() ? "(none)" : keys,
                      "; expected instruction and output, messages, conversations, prompt and completion, question and "
                      "answer, input_ids and labels, or ",
                      text_column_);
  }

  /// An answer that is missing is an error where one is needed, and leaves the question where not.
  void add_answer(Sample& sample, std::string_view key) const {
    if (has(key)) sample.messages.push_back({"assistant", text_of(key)});
  }

  void check_answer(const Sample& sample) const {
    if (sample.messages.empty()) fail<FormatError>(where_, ": the conversation has no turns");
    if (!need_answer_) return;
    for (const Message& message : sample.messages)
      if (message.role == "assistant" && !message.content.empty()) return;
    fail<FormatError>(where_, ": the record has no answer");
  }

  void read_tokens(Sample& sample) const {
    sample.kind = Sample::Kind::tokens;
    sample.tokens = io::json_at<std::vector<std::int32_t>>(record_, "input_ids", where_);
    if (has("labels")) {
      sample.labels = io::json_at<std::vector<std::int32_t>>(record_, "labels", where_);
    } else if (need_answer_) {
      fail<FormatError>(where_, ": the record has input_ids but no labels");
    } else {
      sample.labels.assign(sample.tokens.size(), -100);
    }
    if (sample.labels.size() != sample.tokens.size())
      fail<FormatError>(where_, ": ", sample.tokens.size(), " input_ids but ", sample.labels.size(), " labels");
    if (sample.tokens.empty()) fail<FormatError>(where_, ": input_ids is empty");
    for (const std::int32_t label : sample.labels)
      if (label < 0 && label != -100) fail<FormatError>(where_, ": the label ", label, "; expected an id or -100");
  }

  void read_alpaca(Sample& sample) const {
    if (has("system") && !text_of("system").empty()) sample.messages.push_back({"system", text_of("system")});
    if (const io::Json* history = io::json_find(record_, "history")) {
      const auto rounds = io::json_as<std::vector<std::vector<std::string>>>(*history, where_, "history");
      for (const auto& round : rounds) {
        if (round.size() != 2) fail<FormatError>(where_, ": a round of history has ", round.size(), " texts, not 2");
        sample.messages.push_back({"user", round[0]});
        sample.messages.push_back({"assistant", round[1]});
      }
    }
    const std::string input = text_or_empty("input");
    sample.messages.push_back({"user", text_of("instruction") + (input.empty() ? "" : "\n" + input)});
    // The answers of the history do not stand in for this record's own.
    if (need_answer_ && text_or_empty("output").empty()) fail<FormatError>(where_, ": the record has no answer");
    add_answer(sample, "output");
  }

  void read_pair(Sample& sample, std::string_view question, std::string_view answer) const {
    sample.messages.push_back({"user", text_of(question)});
    add_answer(sample, answer);
  }

  void read_turns(Sample& sample, std::string_view key) const {
    if (const io::Json* tools = io::json_find(record_, "tools"); tools && !tools->empty() && !io::json_is(*tools, ""))
      fail<FormatError>(where_, ": tools are not supported");
    const io::Json& turns = *io::json_find(record_, key);
    if (!turns.is_array()) fail<FormatError>(where_, ": \"", key, "\" must be an array");
    if (has("system") && !text_of("system").empty()) sample.messages.push_back({"system", text_of("system")});
    for (const io::Json& turn : turns) {
      const std::string place = concat(where_, ": ", key, "[", &turn - &turns[0], "]");
      if (!turn.is_object()) fail<FormatError>(place, ": expected an object with role and content");
      for (const char* call : {"tool_calls", "function_call"})
        if (const io::Json* calls = io::json_find(turn, call); calls && !calls->empty())
          fail<FormatError>(place, ": ", call, " are not supported");
      const bool sharegpt = io::json_find(turn, "from") != nullptr;
      Message message;
      message.role = role_of(io::json_at<std::string>(turn, sharegpt ? "from" : "role", place), place);
      message.content = io::json_at<std::string>(turn, sharegpt ? "value" : "content", place);
      message.reasoning = io::json_get<std::string>(turn, "reasoning_content", place);
      sample.messages.push_back(std::move(message));
    }
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
  std::string_view text_column_;
  bool need_answer_;
};

}  // namespace detail
}  // namespace lora::data
