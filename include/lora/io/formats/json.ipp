#pragma once

#include "lora/core/config.hpp"
#include "lora/io/formats/json.hpp"

namespace lora::io {

LORA_INLINE bool JsonBuilder::number_float(Json::number_float_t value, const Json::string_t& digits) {
  if (keeps_digits && Json(value).dump() != digits) return put(concat(number_mark, digits));
  return put(value);
}

LORA_INLINE bool JsonBuilder::key(Json::string_t& name) {
  auto& object = stack_.back()->get_ref<Json::object_t&>();
  object.emplace_back(std::move(name), Json());
  return true;
}

LORA_INLINE bool JsonBuilder::end_object() {
  refuse_twins(stack_.back()->get_ref<const Json::object_t&>());
  stack_.pop_back();
  return true;
}

LORA_INLINE bool JsonBuilder::end_array() {
  stack_.pop_back();
  return true;
}

LORA_INLINE bool JsonBuilder::parse_error(std::size_t position, const std::string&, const Json::exception& error) {
  const std::string_view read = text_.substr(0, std::min(position > 0 ? position - 1 : 0, text_.size()));
  const auto line = std::count(read.begin(), read.end(), '\n');
  const JsonPlace begin = begin_.value_or(JsonPlace{});
  const auto column =
      line > 0 ? std::ssize(read) - static_cast<Index>(read.rfind('\n')) : begin.column + std::ssize(read);
  fail<FormatError>(where_, ":", begin.line + line, ":", column, note(), ": ", reason(error.what()),
                    hint(read, text_.substr(read.size())));
}

LORA_INLINE std::string JsonBuilder::reason(std::string message) {
  const auto syntax = message.find("syntax error");
  message.erase(0, syntax != message.npos ? syntax : message.find("] ") + 2);
  if (message.size() > 300) message.replace(150, message.size() - 300, " ... ");
  return message;
}

LORA_INLINE std::string_view JsonBuilder::hint(std::string_view read, std::string_view rest) {
  const auto before = std::find_if_not(read.rbegin(), read.rend(),
                                       [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; });
  if ((rest.starts_with('}') || rest.starts_with(']')) && before != read.rend() && *before == ',')
    return "; JSON has no comma before it";
  if (rest.starts_with('\'')) return "; JSON has double quotes";
  for (const std::string_view word : {"NaN", "Infinity"})
    if (rest.starts_with(word)) return "; JSON has no NaN and no Infinity, null stands for what is missing";
  for (const std::string_view word : {"True", "False", "None"})
    if (rest.starts_with(word)) return "; JSON writes true, false and null";
  return {};
}

LORA_INLINE bool JsonBuilder::put(Json value) {
  place() = std::move(value);
  return true;
}

LORA_INLINE bool JsonBuilder::open(Json empty) {
  if (stack_.size() == max_depth) fail<FormatError>(place_of_all(), ": nested deeper than ", max_depth, " levels");
  Json& value = place();
  value = std::move(empty);
  stack_.push_back(&value);
  return true;
}

LORA_INLINE Json& JsonBuilder::place() {
  if (stack_.empty()) return root_;
  if (stack_.back()->is_object()) return stack_.back()->get_ref<Json::object_t&>().back().second;
  auto& array = stack_.back()->get_ref<Json::array_t&>();
  array.emplace_back();
  return array.back();
}

LORA_INLINE void JsonBuilder::refuse_twins(const Json::object_t& object) const {
  std::vector<std::string_view> keys;
  keys.reserve(object.size());
  for (const auto& [key, value] : object) keys.emplace_back(key);
  std::sort(keys.begin(), keys.end());
  const auto twin = std::adjacent_find(keys.begin(), keys.end());
  if (twin != keys.end()) fail<FormatError>(place_of_all(), ": the key \"", *twin, "\" appears twice in one object");
}

LORA_INLINE void send_events(std::string_view text, nlohmann::json_sax<Json>& handler, bool comments) {
  Json::sax_parse(text.begin(), text.end(), &handler, Json::input_format_t::json, true, comments);
}

LORA_INLINE Json json_object(std::initializer_list<JsonField> fields) {
  Json object = Json::object();
  auto& entries = object.get_ref<Json::object_t&>();
  for (const JsonField& field : fields) entries.emplace_back(std::string(field.name), field.value);
  return object;
}

LORA_INLINE Json parse_json(std::string_view text, const std::string& where, bool comments,
                            std::optional<JsonPlace> begin) {
  JsonBuilder builder(text, where, std::move(begin));
  send_events(text, builder, comments);
  return builder.take();
}

LORA_INLINE Json read_json(const Path& path, bool comments) {
  return parse_json(read_file(path), path.native(), comments);
}

LORA_INLINE std::string to_text(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

LORA_INLINE void write_json(const Path& path, const Json& value) { write_file(path, to_text(value) + "\n"); }

}  // namespace lora::io

namespace lora::io::detail {

/// Puts the numbers of `original`, which keeps digits, in the place of the same ones in `value`.
LORA_INLINE void take_digits(Json& value, const Json& original, const std::string& where) {
  if (value.is_object() && original.is_object()) {
    for (auto& [key, field] : value.get_ref<Json::object_t&>())
      if (const auto old = original.find(key); old != original.end()) take_digits(field, *old, where);
  } else if (value.is_array() && original.is_array() && value.size() == original.size()) {
    for (std::size_t i = 0; i < value.size(); ++i) take_digits(value[i], original[i], where);
  } else if (value.is_number_float() && original.is_string()) {
    const auto& text = original.get_ref<const std::string&>();
    if (!text.starts_with(JsonBuilder::number_mark)) return;
    const Json number = parse_json(std::string_view(text).substr(JsonBuilder::number_mark.size()), where);
    if (number.is_number_float() && number.get<double>() == value.get<double>()) value = text;
  }
}

/// The text of a value that was read from `original` and changed.
LORA_INLINE std::string changed_text(Json value, const std::string& original, const std::string& where) {
  const std::string mark = to_text(Json(std::string(JsonBuilder::number_mark)), -1);
  const std::string_view begin = std::string_view(mark).substr(0, mark.size() - 1);  // without the closing quote
  std::string text = to_text(value);
  if (text.find(begin) != text.npos) return text;  // a text of the user's looks like that
  JsonBuilder builder(original, where, std::nullopt);
  builder.keeps_digits = true;
  send_events(original, builder);
  take_digits(value, builder.take(), where);
  text = to_text(value);
  for (std::size_t at = text.find(begin); at != text.npos; at = text.find(begin, at)) {
    text.erase(at, begin.size());
    text.erase(text.find('"', at), 1);
  }
  return text;
}

}  // namespace lora::io::detail

namespace lora::io {

LORA_INLINE void write_changed_json(const Path& path, const Json& value, const Path& original) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(original, none)) return write_json(path, value);
  write_file(path, detail::changed_text(value, read_file(original), original.native()) + "\n");
}

LORA_INLINE bool json_is(const Json& value, std::string_view text) {
  return value.is_string() && value.get_ref<const std::string&>() == text;
}

LORA_INLINE const Json* json_find(const Json& object, std::string_view key) {
  const auto place = object.find(key);
  return place == object.end() || place->is_null() ? nullptr : &*place;
}

}  // namespace lora::io
