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
#include "lora/io/files/file.hpp"

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
  bool number_float(Json::number_float_t value, const Json::string_t& digits) override;
  bool string(Json::string_t& value) override { return put(std::move(value)); }
  bool binary(Json::binary_t&) override { return true; }  // JSON has none
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool key(Json::string_t& name) override;
  bool end_object() override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) override;

  Json take() { return std::move(root_); }

 private:
  /// The library's own message without its number and position, and not longer than a line.
  static std::string reason(std::string message);

  /// What other notations have and JSON has not. `read`: what stands before the character that can't be.
  static std::string_view hint(std::string_view read, std::string_view rest);

  bool put(Json value);
  bool open(Json empty);
  /// Where the next value goes. Pointers on the stack stay valid, since only the innermost container grows.
  Json& place();
  void refuse_twins(const Json::object_t& object) const;

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
void send_events(std::string_view text, nlohmann::json_sax<Json>& handler, bool comments = false);

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
    requires(std::is_arithmetic_v<N>)
  JsonField(std::string_view field, N number) : name(field), value(number) {}
  template <std::same_as<Json> J>
  JsonField(std::string_view field, J json) : name(field), value(std::move(json)) {}
  template <class Item>
  JsonField(std::string_view field, const std::vector<Item>& items) : name(field), value(json_array(items)) {}

  std::string_view name;
  Json value;
};

Json json_object(std::initializer_list<JsonField> fields);

/// Parses one JSON value. `where` names the file in errors; of a record in a file, `begin` is where the record begins.
/// Throws   FormatError with file:line:column, or without a column for what is no error of syntax
Json parse_json(std::string_view text, const std::string& where, bool comments = false,
                std::optional<JsonPlace> begin = std::nullopt);

Json read_json(const Path& path, bool comments = false);

/// The JSON text of a value; indent < 0 gives one line. Numbers parse back to the same value. Invalid UTF-8 becomes
/// U+FFFD.
std::string to_text(const Json& value, int indent = 2);

/// A value as shown in an error: shortened, on one line.
inline std::string shown(const Json& value) { return shortened(to_text(value, -1), 80); }

/// Writes a value to a file, atomically.
void write_json(const Path& path, const Json& value);

/// write_json of a value that was read from a file, which may be the one that is written, and changed: numbers that are
/// as they were have the digits that they have there, also where a double has fewer.
void write_changed_json(const Path& path, const Json& value, const Path& original);

/// The names and values of an object, in their order.
inline const Json::object_t& json_fields(const Json& object) { return object.get_ref<const Json::object_t&>(); }

/// Whether a value is this text. (Comparing Json values would compile a comparison for every type.)
bool json_is(const Json& value, std::string_view text);

/// The value of `key`; null if it is absent or JSON's null.
const Json* json_find(const Json& object, std::string_view key);

}  // namespace lora::io

#ifndef LORA_COMPILED
#  include "lora/io/formats/json.ipp"
#endif
