#pragma once

#include <cstddef>

#include "lora/core/config.hpp"
#include "lora/data/records/record_reader.hpp"

namespace lora::data::detail {

constexpr RecordShape record_shapes[] = {
    {"input_ids", Sample::Kind::tokens, {"labels", "attention_mask"}},
    {"messages", Sample::Kind::messages, {"system"}},
    {"conversations", Sample::Kind::messages, {"system"}},
    {"instruction", Sample::Kind::messages, {"input", "output", "system", "history"}},
    {"prompt", Sample::Kind::messages, {"completion", "system", "history"}},
    {"question", Sample::Kind::messages, {"answer", "system", "history"}},
    {"query", Sample::Kind::messages, {"response", "system", "history"}},
};

/// Whether a value is empty, in one of the ways in which data sets write that.
LORA_INLINE bool is_nothing(const io::Json& value) {
  if (value.is_null()) return true;
  if (!value.is_string()) return value.is_structured() && value.empty();
  std::string text = value.get<std::string>();
  text.erase(std::remove_if(text.begin(), text.end(), [](char c) { return c == ' ' || c == '\n'; }), text.end());
  return text.empty() || text == "[]" || text == "{}" || text == "null";
}

LORA_INLINE RecordReader::RecordReader(const io::Json& record, const std::string& where, const DatasetOptions& options)
    : record_(record, where), options_(options) {
  if (!record.is_object()) record_.fail("expected a record {...}, found ", std::string_view(record.type_name()));
  if (record_.has("chosen") && record_.has("rejected"))
    record_.fail("chosen and rejected are preference data, which are not supported; expected one answer, such as ",
                 "prompt and completion");
  for (const RecordShape& shape : record_shapes)
    if (record_.has(shape.field)) {
      if (shape.field == "query" && record_.has(options_.text_column)) break;  // a text, and what it answers
      shape_ = &shape;
      return;
    }
  if (record_.has(options_.text_column)) return;
  if (!record.contains("instruction") || !record_.has("input")) fail_unknown();
  shape_ = std::find_if(std::begin(record_shapes), std::end(record_shapes),
                        [](const RecordShape& shape) { return shape.field == "instruction"; });
}

LORA_INLINE bool RecordReader::knows(std::string_view field) {
  return std::any_of(std::begin(record_shapes), std::end(record_shapes),
                     [&](const RecordShape& shape) { return shape.field == field; });
}

LORA_INLINE Sample RecordReader::read() {
  Sample sample;
  sample.kind = kind();
  check_fields();
  if (const auto marked = read_marks(record_, [&](std::string_view field) { return has_meaning(field); }))
    sample.learned = marked->learned;
  sample.label = label();
  const auto tools = record_.find("tools");
  if (sample.kind == Sample::Kind::messages && tools && !is_nothing(tools->json())) sample.tools = read_tools(*tools);
  if (shape_ == nullptr) {
    sample.text = text_of(options_.text_column);
    if (sample.text.empty()) leave_out(sample, "the text is empty");
  } else if (sample.kind == Sample::Kind::tokens) {
    read_tokens(sample);
  } else if (shape_->field == "messages" || shape_->field == "conversations") {
    read_turns(sample);
  } else if (shape_->field == "prompt" && (is_list("prompt") || is_list("completion"))) {
    read_turns_of_pair(sample);
  } else {
    read_pair(sample);
  }
  return sample;
}

LORA_INLINE std::string RecordReader::fields() const {
  constexpr std::size_t most = 20;
  std::string list;
  std::size_t count = 0;
  for (const auto& [field, value] : io::json_fields(record_.json())) {
    if (++count > most) return list + ", ...";
    list += (list.empty() ? "" : ", ") + field;
  }
  return list.empty() ? "(none)" : list;
}

LORA_INLINE void RecordReader::fail_unknown() const {
  std::string whole, nothing;
  for (const auto& [field, value] : io::json_fields(record_.json()))
    if (value.is_null() && (field == options_.text_column || knows(field)))
      nothing = concat(", of which ", field, " is null");
  if (record_.has("segments")) whole = "; segments, axolotl's input_output, can be written as input_ids and labels";
  if (record_.has("conversation")) whole = "; conversation can be written as conversations, with from and value";
  for (const auto& [field, value] : io::json_fields(record_.json()))
    if (whole.empty() && value.is_array() && !value.empty() && value.front().is_object())
      whole = concat("; ", field, " holds records: a file is such an array itself, or has a record per line");
  record_.fail("a record with the keys ", fields(), nothing,
               "; expected instruction and output, messages, conversations, prompt and completion, question and "
               "answer, query and response, input_ids and labels, or ",
               options_.text_column, whole);
}

LORA_INLINE std::optional<std::string> RecordReader::label() const {
  const io::Json* value = options_.label_field.empty() ? nullptr : io::json_find(record_.json(), options_.label_field);
  if (value == nullptr || value->is_null()) return std::nullopt;
  if (value->is_structured())
    record_.fail("\"", options_.label_field, "\" is ", std::string_view(value->type_name()),
                 ", which can't name a class; expected a text or a number");
  return value->is_string() ? value->get<std::string>() : io::to_text(*value, -1);
}

LORA_INLINE bool RecordReader::is_media(std::string_view field) {
  for (const std::string_view name : {"images", "image", "videos", "video", "audios", "audio"})
    if (field == name) return true;
  return false;
}

LORA_INLINE bool RecordReader::marks_bad_answer(const io::Json& value) {
  if (value.is_string()) {
    const auto& word = value.get_ref<const std::string&>();
    return word == "false" || word == "False" || word == "0";
  }
  return (value.is_boolean() && !value.get<bool>()) || (value.is_number() && value.get<double>() == 0);
}

LORA_INLINE bool RecordReader::reads(std::string_view field) const {
  if (!shape_) return false;
  return identifies(field) || std::find(shape_->others.begin(), shape_->others.end(), field) != shape_->others.end();
}

LORA_INLINE bool RecordReader::has_meaning(std::string_view field) const {
  return field == options_.label_field || field == (shape_ ? shape_->field : std::string_view(options_.text_column));
}

LORA_INLINE void RecordReader::check_fields() {
  for (const auto& [field, value] : io::json_fields(record_.json())) {
    if (has_meaning(field) || is_learning_mark(field)) continue;
    if (reads(field)) continue;
    if (field == "system_prompt" && kind() == Sample::Kind::messages) continue;
    if ((field == "rejected_response" || field == "rejected_messages") && !is_nothing(value))
      record_.fail(field, be(field), " preference data, which is not supported; expected good answers only");
    if (shape_ && (field == "label" || field == "kto_tag")) {
      if (value.is_boolean() && value.get<bool>()) continue;  // a good answer
      if (marks_bad_answer(value))
        record_.fail("\"", field, "\" is ", io::to_text(value, -1), ", which marks a bad answer (preference data); ",
                     "expected good answers only");
    }
    if (field == "tools" && kind() == Sample::Kind::messages) continue;
    if (field == "functions" && shape_ && shape_->field == "messages" && !is_nothing(value))
      record_.fail("functions are not supported; expected tools");
    if (field == "tools" || is_media(field)) {
      if (!is_nothing(value)) record_.fail(field, be(field), " not supported");
      continue;
    }
    unused_.push_back(field);
  }
}

LORA_INLINE void RecordReader::read_tokens(Sample& sample) const {
  using Ids = std::vector<std::int32_t>;
  sample.tokens = record_.at<Ids>("input_ids");
  if (auto labels = record_.get<Ids>("labels")) {
    sample.labels = std::move(*labels);
  } else if (options_.need_answer) {
    record_.fail("the record has input_ids but no labels");
  } else {
    sample.labels.assign(sample.tokens.size(), ignore_index);
  }
  if (sample.labels.size() != sample.tokens.size())
    record_.fail(sample.tokens.size(), " input_ids but ", sample.labels.size(), " labels");
  if (sample.tokens.empty()) record_.fail("input_ids is empty");
  for (std::size_t i = 0; i < sample.tokens.size(); ++i)
    if (sample.tokens[i] < 0)
      record_.fail("input_ids[", i, "] is ", sample.tokens[i], "; expected an id from 0 on",
                   sample.tokens[i] == ignore_index ? ": only labels may be -100" : "");
  for (const std::int32_t label : sample.labels)
    if (label < 0 && label != ignore_index) record_.fail("the label ", label, "; expected an id or ", ignore_index);
  const auto mask = record_.get<Ids>("attention_mask");
  if (mask && (mask->size() != sample.tokens.size() || std::count(mask->begin(), mask->end(), 1) != std::ssize(*mask)))
    record_.fail("attention_mask hides tokens; expected records without padding");
}

LORA_INLINE void RecordReader::read_pair(Sample& sample) const {
  const std::string_view answer = shape_->field == "instruction" ? shape_->others[1] : shape_->others[0];
  read_system(sample);
  read_history(sample);
  std::string asked = text_or_empty(shape_->field);
  if (shape_->field == "instruction") {
    const std::string input = text_or_empty("input");
    asked += (asked.empty() || input.empty() ? "" : "\n") + input;
  }
  sample.messages.push_back({"user", std::move(asked)});
  // An answer in the history doesn't replace the record's own.
  if (options_.need_answer && !record_.json().contains(answer))
    record_.fail("the record has no answer; expected the field ", answer, ", found ", fields());
  if (text_or_empty(answer).empty()) leave_out(sample, "the record has no answer; \"", answer, "\" is empty");
  if (record_.has(answer)) sample.messages.push_back({"assistant", text_of(answer)});
}

LORA_INLINE void RecordReader::read_history(Sample& sample) const {
  const auto given = record_.find("history");
  if (!given || is_nothing(given->json())) return;
  for (const auto& round : given->as<std::vector<std::vector<std::string>>>()) {
    if (round.size() != 2) record_.fail("a round of history has ", round.size(), " texts, not 2");
    sample.messages.push_back({"user", round[0]});
    sample.messages.push_back({"assistant", round[1]});
  }
}

LORA_INLINE void RecordReader::read_system(Sample& sample) const {
  std::string system = text_or_empty("system");
  if (std::string other = text_or_empty("system_prompt"); !other.empty()) {
    if (!system.empty()) record_.fail("\"system\" stands beside \"system_prompt\"; expected one of the two");
    system = std::move(other);
  }
  if (!system.empty()) sample.messages.push_back({"system", std::move(system)});
}

LORA_INLINE bool RecordReader::is_list(std::string_view field) const {
  const io::Json* value = io::json_find(record_.json(), field);
  return value != nullptr && value->is_array();
}

LORA_INLINE void RecordReader::read_turns_of_pair(Sample& sample) {
  const bool answered = record_.has("completion");
  if (options_.need_answer && !answered)
    record_.fail("the record has no answer; expected the field completion, found ", fields());
  for (const std::string_view field : {"prompt", "completion"})
    if (record_.has(field) && !is_list(field))
      record_.fail("\"", field, "\" is no list of turns, but \"", field == "prompt" ? "completion" : "prompt",
                   "\" is; expected texts or lists of turns in both");
  if (const auto history = record_.find("history"); history && !is_nothing(history->json()))
    record_.fail("\"history\" stands beside turns; expected it among the turns of \"prompt\"");
  read_system(sample);
  add_turns(sample, "prompt", !sample.messages.empty());
  if (sample.messages.empty() || sample.messages.back().role == "assistant" || sample.messages.back().role == "system")
    record_.fail("\"prompt\" ends with ", sample.messages.empty() ? "no turn" : "a turn of the ",
                 sample.messages.empty() ? "" : sample.messages.back().role, "; expected one of the user, or a tool's");
  for (Message& message : sample.messages)
    if (message.role == "assistant") message.learned = false;
  if (!answered) return;
  const std::size_t asked = sample.messages.size();
  add_turns(sample, "completion", true);
  if (sample.messages.size() > asked && sample.messages[asked].role != "assistant")
    record_.fail("\"completion\" begins with a turn of the ", sample.messages[asked].role,
                 "; expected the assistant's");
  expect_answer(sample, asked);
}

LORA_INLINE void RecordReader::read_turns(Sample& sample) {
  read_system(sample);
  add_turns(sample, shape_->field, !sample.messages.empty());
  if (sample.messages.empty()) record_.fail("the conversation has no turns");
  expect_answer(sample, 0);
}

LORA_INLINE void RecordReader::add_turns(Sample& sample, std::string_view field, bool has_system) {
  const io::JsonView turns = *record_.find(field);
  if (!turns.json().is_array()) record_.fail("\"", field, "\" must be an array");
  for (std::size_t i = 0; i < turns.json().size(); ++i) {
    sample.messages.push_back(read_turn(turns.element(i), field));
    if (has_system && sample.messages.back().role == "system")
      turns.element(i).fail("a system turn stands ", field == "completion"
                                                         ? "in \"completion\"; expected it in "
                                                           "\"prompt\""
                                                         : "beside the record's \"system\"; expected one of the two");
  }
}

LORA_INLINE void RecordReader::expect_answer(Sample& sample, std::size_t first) const {
  const auto from = sample.messages.begin() + static_cast<std::ptrdiff_t>(first);
  const bool answered = std::any_of(from, sample.messages.end(), [](const Message& message) {
    return message.role == "assistant" && !(message.content.empty() && message.tool_calls.empty());
  });
  if (!answered) leave_out(sample, "the record has no answer; expected a turn of the assistant with a text");
}

LORA_INLINE Message RecordReader::read_turn(const io::JsonView& turn, std::string_view list) {
  if (!turn.json().is_object()) turn.fail("expected an object with role and content");
  const bool sharegpt = turn.has("from");
  const std::string_view role = one_of(turn, "from", "role"),
                         content = one_of(turn, "value", "content", role == "from");
  for (const auto& [field, value] : io::json_fields(turn.json())) {
    if (field == role || field == content || field == "reasoning_content" || field == "tool_calls") continue;
    if (is_learning_mark(field)) continue;
    if (field == "function_call" || is_media(field)) {
      if (!is_nothing(value))
        turn.fail(field, be(field), " not supported", is_media(field) ? "" : "; expected tool_calls");
      continue;
    }
    unused_.push_back(concat(list, "[].", field));
  }
  Message message;
  const std::string named = turn.at<std::string>(role);
  const auto calls = turn.find("tool_calls");
  if (calls && !is_nothing(calls->json())) {
    if (!calls->json().is_array()) turn.fail("\"tool_calls\" must be an array");
    message.tool_calls = calls_of(list, "tool_calls").read_all(*calls);
  }
  if (sharegpt && named == "function_call") {  // as in LLaMA-Factory's files
    if (!message.tool_calls.empty()) turn.fail("a turn of function_call has tool_calls beside its value");
    const auto value = turn.find(content);
    if (!value) turn.fail("\"", content, "\" is missing");
    FunctionCall read = read_function_call(*value, calls_of(list, content));
    message.role = "assistant";
    message.content = std::move(read.thoughts);
    message.tool_calls = std::move(read.calls);
  } else {
    message.role = role_of(turn, named);
    const bool may_lack = !message.tool_calls.empty() && !turn.has(content);
    message.content = may_lack ? std::string() : content_of(turn, content);
  }
  if (!message.tool_calls.empty() && message.role != "assistant")
    turn.fail("tool_calls in a turn of the ", message.role, "; expected them in the assistant's turns only");
  message.reasoning = turn.get<std::string>("reasoning_content");
  if (const auto marked = read_marks(turn, [](std::string_view) { return false; })) {
    message.learned = marked->learned;
    if (marked->learned && message.role != "assistant")
      turn.fail("\"", marked->field, "\" says that a turn of the ", message.role,
                " is learned; expected that of the assistant's turns only");
  }
  return message;
}

LORA_INLINE std::string_view RecordReader::one_of(const io::JsonView& turn, std::string_view first,
                                                  std::string_view second, bool expects_first) {
  if (turn.has(first) && turn.has(second))
    turn.fail("\"", first, "\" stands beside \"", second, "\"; expected one of the two");
  return turn.has(first) || (expects_first && !turn.has(second)) ? first : second;
}

LORA_INLINE std::string RecordReader::content_of(const io::JsonView& turn, std::string_view field) {
  const auto content = turn.find(field);
  if (!content || !content->json().is_array()) return turn.at<std::string>(field);
  for (std::size_t i = 0; i < content->json().size(); ++i) {
    const io::JsonView part = content->element(i);
    const io::Json* const type = part.json().is_object() ? io::json_find(part.json(), "type") : nullptr;
    if (type == nullptr || !io::json_is(*type, "text"))
      content->fail("part ", i + 1, " is ", io::shown(part.json()), "; expected {\"type\": \"text\", \"text\": ...}");
  }
  if (content->json().size() != 1)
    content->fail(content->json().size(), " parts; expected one: templates differ in how they join several");
  return content->element(0).at<std::string>("text");
}

LORA_INLINE CallReader RecordReader::calls_of(std::string_view list, std::string_view field) {
  return {concat(list, "[].", field, "[]."), unused_};
}

LORA_INLINE std::string RecordReader::role_of(const io::JsonView& turn, const std::string& name) {
  for (const char* role : {"system", "user", "assistant", "tool"})
    if (name == role) return name;
  if (name == "human") return "user";
  if (name == "gpt" || name == "bot" || name == "chatbot") return "assistant";
  if (name == "observation" || name == "tool_response") return "tool";
  if (name == "function_call")
    turn.fail("the role \"function_call\" stands beside from and value only; expected an assistant's tool_calls");
  turn.fail("the role \"", name, "\"; expected system, user, assistant, tool, human, gpt, observation or ",
            "function_call");
}

}  // namespace lora::data::detail
