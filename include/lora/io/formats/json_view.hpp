#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/io/files/path.hpp"
#include "lora/io/formats/json.hpp"

namespace lora::io {

namespace detail {

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};

template <class T>
constexpr std::string_view json_type_name() {
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_integral_v<T>) return "an integer in range";
  if constexpr (std::is_floating_point_v<T>) return "a number";
  if constexpr (std::is_same_v<T, std::string>) return "a string";
  return "an array";
}

}  // namespace detail

/// Reads the value as a T; false if it has another type. The only conversion is from integers to floating point.
template <class T>
bool take_json(const Json& json, T& value) {
  if constexpr (detail::IsVector<T>::value) {
    if (!json.is_array()) return false;
    value.resize(json.size());
    for (std::size_t i = 0; i < value.size(); ++i)
      if (!take_json(json[i], value[i])) return false;
    return true;
  } else if constexpr (std::is_same_v<T, bool>) {
    if (json.is_boolean()) value = json.get<bool>();
    return json.is_boolean();
  } else if constexpr (std::is_integral_v<T>) {
    const bool natural = json.is_number_unsigned();
    if (!json.is_number_integer()) return false;
    if (!(natural ? std::in_range<T>(json.get<std::uint64_t>()) : std::in_range<T>(json.get<std::int64_t>())))
      return false;
    value = natural ? static_cast<T>(json.get<std::uint64_t>()) : static_cast<T>(json.get<std::int64_t>());
    return true;
  } else if constexpr (std::is_floating_point_v<T>) {
    if (json.is_number()) value = json.get<T>();
    return json.is_number();
  } else {
    static_assert(std::is_same_v<T, std::string>);
    if (json.is_string()) value = json.get_ref<const std::string&>();
    return json.is_string();
  }
}

/// A JSON value with its place, which every error names: the file, the line where known, and the path of fields to the
/// value. The value must outlive the view.
class JsonView {
 public:
  /// `where`: the file, or a place in it. `name`: the field at that place that holds the value; empty: the place
  /// itself.
  JsonView(const Json& json, std::string where, std::string name = {})
      : json_(&json), where_(std::move(where)), name_(std::move(name)) {}

  /// Throws   FormatError if the value is no object
  static JsonView of_object(const Json& json, std::string where) {
    JsonView view(json, std::move(where));
    if (!json.is_object()) view.fail("expected an object");
    return view;
  }

  const Json& json() const { return *json_; }
  const std::string& name() const { return name_; }
  const std::string& where() const { return where_; }
  std::string place() const { return name_.empty() ? where_ : concat(where_, ": ", name_); }

  /// The value itself as a bool, integer, floating point number, string, or vector of these.
  template <class T>
  T as() const {
    T value{};
    if (take_json(*json_, value)) return value;
    if constexpr (detail::IsVector<T>::value)
      if (json_->is_array())
        for (std::size_t i = 0; i < json_->size(); ++i) (void)element(i).template as<typename T::value_type>();
    lora::fail<FormatError>(where_, ": \"", name_, "\" must be ", detail::json_type_name<T>(), ", found ",
                            shown(*json_));
  }

  /// Whether an object has the field, with a value other than null.
  bool has(std::string_view key) const { return json_find(*json_, key) != nullptr; }

  /// The value of a field, if it is there and not null.
  std::optional<JsonView> find(std::string_view key) const {
    const Json* value = json_find(*json_, key);
    return value ? std::optional(JsonView(*value, place(), std::string(key))) : std::nullopt;
  }
  template <class T>
  std::optional<T> get(std::string_view key) const {
    const Json* value = json_find(*json_, key);
    return value ? std::optional<T>(read<T>(*value, key)) : std::nullopt;
  }

  /// The value of a field.
  /// Throws   FormatError if it is missing
  template <class T>
  T at(std::string_view key) const {
    const Json* value = json_find(*json_, key);
    if (value == nullptr)
      lora::fail<FormatError>(place(), ": \"", key, json_->contains(key) ? "\" is null" : "\" is missing");
    return read<T>(*value, key);
  }

  /// Calls f(name, view) for each field of an object, in their order.
  template <class F>
  void for_each_field(F&& f) const {
    const std::string where = place();
    for (const auto& [name, value] : json_fields(*json_)) f(name, JsonView(value, where, name));
  }

  /// The i-th value of an array.
  JsonView element(std::size_t i) const { return {(*json_)[i], where_, concat(name_, "[", i, "]")}; }

  /// Throws   FormatError with the place and then the parts
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    lora::fail<FormatError>(place(), ": ", parts...);
  }

 private:
  /// Builds the place's text only for an error.
  template <class T>
  T read(const Json& json, std::string_view key) const {
    T value{};
    return take_json(json, value) ? value : JsonView(json, place(), std::string(key)).template as<T>();
  }

  const Json* json_;
  std::string where_, name_;
};

/// A file that holds one JSON object.
class JsonFile {
 public:
  /// Throws   IoError, FormatError
  explicit JsonFile(const Path& path)
      : content_(read_json(path)), view_(JsonView::of_object(content_, path.native())) {}
  JsonFile(const JsonFile&) = delete;
  JsonFile& operator=(const JsonFile&) = delete;

  const JsonView& view() const { return view_; }
  const JsonView* operator->() const { return &view_; }

 private:
  Json content_;
  JsonView view_;
};

}  // namespace lora::io
