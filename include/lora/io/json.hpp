#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/scalar.hpp"
#include "lora/io/file.hpp"

namespace lora::io {

/// A JSON value whose objects keep their order. Lookup by key is linear: iterate over large objects (a vocabulary) with
/// `json_fields`.
using Json = nlohmann::ordered_json;

/// Where a value begins in its file.
struct JsonPlace {
  Index line = 1;
  Index column = 1;
  std::string note{};  ///< said behind the place in errors, such as which of the records of a line it is
};

/// Builds a Json from the parser's events. Unlike the JSON library's own builder it rejects duplicate keys and nesting
/// deep enough to overflow the stack of a recursive visitor, and takes linear time for large objects.
class JsonBuilder final : public nlohmann::json_sax<Json> {
 public:
  static constexpr std::size_t max_depth = 200;

  JsonBuilder(std::string_view text, const std::string& where, std::optional<JsonPlace> begin)
      : text_(text), where_(where), begin_(std::move(begin)) {}

  /// What a number becomes that to_text would write otherwise than it stands there, if `keeps_digits`: this and its
  /// text.
  static constexpr std::string_view number_mark = "\x1F number ";
  bool keeps_digits = false;

  bool null() override { return put(Json()); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(Json::number_integer_t value) override { return put(value); }
  bool number_unsigned(Json::number_unsigned_t value) override { return put(value); }
  bool number_float(Json::number_float_t value, const Json::string_t& digits) override {
    if (keeps_digits && Json(value).dump() != digits) return put(concat(number_mark, digits));
    return put(value);
  }
  bool string(Json::string_t& value) override { return put(std::move(value)); }
  bool binary(Json::binary_t&) override { return true; }  // JSON has none
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool key(Json::string_t& name) override {
    auto& object = stack_.back()->get_ref<Json::object_t&>();
    object.emplace_back(std::move(name), Json());
    return true;
  }
  bool end_object() override {
    refuse_twins(stack_.back()->get_ref<const Json::object_t&>());
    stack_.pop_back();
    return true;
  }
  bool end_array() override {
    stack_.pop_back();
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) override {
    const std::string_view read = text_.substr(0, std::min(position > 0 ? position - 1 : 0, text_.size()));
    const auto line = std::count(read.begin(), read.end(), '\n');
    const JsonPlace begin = begin_.value_or(JsonPlace{});
    const auto column =
        line > 0 ? std::ssize(read) - static_cast<Index>(read.rfind('\n')) : begin.column + std::ssize(read);
    fail<FormatError>(where_, ":", begin.line + line, ":", column, note(), ": ", reason(error.what()),
                      hint(read, text_.substr(read.size())));
  }

  Json take() { return std::move(root_); }

 private:
  /// The library's own message without its number and position, and not longer than a line.
  static std::string reason(std::string message) {
    const auto syntax = message.find("syntax error");
    message.erase(0, syntax != message.npos ? syntax : message.find("] ") + 2);
    if (message.size() > 300) message.replace(150, message.size() - 300, " ... ");
    return message;
  }

  /// What other notations have and JSON has not. `read`: what stands before the character that can't be.
  static std::string_view hint(std::string_view read, std::string_view rest) {
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

  bool put(Json value) {
    place() = std::move(value);
    return true;
  }
  bool open(Json empty) {
    if (stack_.size() == max_depth) fail<FormatError>(place_of_all(), ": nested deeper than ", max_depth, " levels");
    Json& value = place();
    value = std::move(empty);
    stack_.push_back(&value);
    return true;
  }
  /// Where the next value goes. Pointers on the stack stay valid, since only the innermost container grows.
  Json& place() {
    if (stack_.empty()) return root_;
    if (stack_.back()->is_object()) return stack_.back()->get_ref<Json::object_t&>().back().second;
    auto& array = stack_.back()->get_ref<Json::array_t&>();
    array.emplace_back();
    return array.back();
  }
  void refuse_twins(const Json::object_t& object) const {
    std::vector<std::string_view> keys;
    keys.reserve(object.size());
    for (const auto& [key, value] : object) keys.emplace_back(key);
    std::sort(keys.begin(), keys.end());
    const auto twin = std::adjacent_find(keys.begin(), keys.end());
    if (twin != keys.end()) fail<FormatError>(place_of_all(), ": the key \"", *twin, "\" appears twice in one object");
  }

  /// The parser gives a line and column only for its own errors.
  std::string place_of_all() const { return begin_ ? concat(where_, ":", begin_->line, note()) : where_; }
  std::string note() const { return begin_ && !begin_->note.empty() ? ": " + begin_->note : std::string(); }

  std::string_view text_;
  const std::string& where_;
  std::optional<JsonPlace> begin_;
  Json root_;
  std::vector<Json*> stack_;
};

/// Parses and sends the events to the handler. All handlers have one base class, so the parser is compiled once.
inline void send_events(std::string_view text, nlohmann::json_sax<Json>& handler, bool comments = false) {
  Json::sax_parse(text.begin(), text.end(), &handler, Json::input_format_t::json, true, comments);
}

/// An array of numbers or texts.
template <class Item>
Json json_array(const std::vector<Item>& items) {
  Json array = Json::array();
  for (const Item& item : items) array.push_back(Json(item));
  return array;
}

/// A field of an object literal. Json's own initializer lists are a template instantiation for each length.
struct JsonField {
  JsonField(std::string_view field, const char* text) : name(field), value(std::string(text)) {}
  JsonField(std::string_view field, const std::string& text) : name(field), value(text) {}
  JsonField(std::string_view field, std::nullptr_t) : name(field) {}
  template <class N>
  requires(std::is_arithmetic_v<N>) JsonField(std::string_view field, N number) : name(field), value(number) {}
  template <std::same_as<Json> J>
  JsonField(std::string_view field, J json) : name(field), value(std::move(json)) {}
  template <class Item>
  JsonField(std::string_view field, const std::vector<Item>& items) : name(field), value(json_array(items)) {}

  std::string_view name;
  Json value;
};

inline Json json_object(std::initializer_list<JsonField> fields) {
  Json object = Json::object();
  auto& entries = object.get_ref<Json::object_t&>();
  for (const JsonField& field : fields) entries.emplace_back(std::string(field.name), field.value);
  return object;
}

/// Parses one JSON value. `where` names the file in errors; of a record in a file, `begin` is where the record begins.
/// Throws   FormatError with file:line:column, or without a column for what is no error of syntax
inline Json parse_json(std::string_view text, const std::string& where, bool comments = false,
                       std::optional<JsonPlace> begin = std::nullopt) {
  JsonBuilder builder(text, where, std::move(begin));
  send_events(text, builder, comments);
  return builder.take();
}

inline Json read_json(const std::filesystem::path& path, bool comments = false) {
  return parse_json(read_file(path), path.native(), comments);
}

/// The JSON text of a value; indent < 0 gives one line. Numbers parse back to the same value. Invalid UTF-8 becomes
/// U+FFFD.
inline std::string to_text(const Json& value, int indent = 2) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

/// A value as shown in an error: shortened, on one line.
inline std::string shown(const Json& value) { return shortened(to_text(value, -1), 80); }

/// Writes a value to a file, atomically.
inline void write_json(const std::filesystem::path& path, const Json& value) {
  write_file(path, to_text(value) + "\n");
}

namespace detail {

/// Puts the numbers of `original`, which keeps digits, in the place of the same ones in `value`.
inline void take_digits(Json& value, const Json& original, const std::string& where) {
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
inline std::string changed_text(Json value, const std::string& original, const std::string& where) {
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

}  // namespace detail

/// write_json of a value that was read from a file, which may be the one that is written, and changed: numbers that are
/// as they were have the digits that they have there, also where a double has fewer.
inline void write_changed_json(const std::filesystem::path& path, const Json& value,
                               const std::filesystem::path& original) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(original, none)) return write_json(path, value);
  write_file(path, detail::changed_text(value, read_file(original), original.native()) + "\n");
}

/// The names and values of an object, in their order.
inline const Json::object_t& json_fields(const Json& object) { return object.get_ref<const Json::object_t&>(); }

/// Whether a value is this text. (Comparing Json values would compile a comparison for every type.)
inline bool json_is(const Json& value, std::string_view text) {
  return value.is_string() && value.get_ref<const std::string&>() == text;
}

/// The value of `key`; null if it is absent or JSON's null.
inline const Json* json_find(const Json& object, std::string_view key) {
  const auto place = object.find(key);
  return place == object.end() || place->is_null() ? nullptr : &*place;
}

}  // namespace lora::io
