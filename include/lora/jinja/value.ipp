#pragma once

#include <algorithm>

#include "lora/core/config.hpp"
#include "lora/jinja/value.hpp"

namespace lora::jinja {

LORA_INLINE Value Value::of(Meter* meter, std::string text, bool markup) {
  return Value(Kind::text, std::make_shared<Text>(meter, std::move(text), markup));
}

LORA_INLINE int Value::depth() const {
  return is(Kind::sequence) ? sequence().depth : is(Kind::dict) ? dict().depth : 0;
}

LORA_INLINE bool truth(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::absent:
    case Value::Kind::undefined:
    case Value::Kind::none:
      return false;
    case Value::Kind::boolean:
    case Value::Kind::integer:
      return value.whole() != 0;
    case Value::Kind::real:
      return value.real() != 0;
    case Value::Kind::text:
      return !value.text().empty();
    case Value::Kind::sequence:
      return value.sequence().form == Sequence::Form::stream || !value.sequence().items.empty();
    case Value::Kind::dict:
      return !value.dict().entries.empty();
    default:
      return true;
  }
}

LORA_INLINE Sequence::Sequence(Meter* meter, Form made, std::vector<Value> values)
    : form(made), items(std::move(values)), charge(meter, items.size() * sizeof(Value) + sizeof(Sequence)) {
  for (const Value& item : items) depth = std::max(depth, item.depth() + 1);
}

LORA_INLINE std::vector<Value> Sequence::take_all() {
  if (form != Form::stream) return items;
  std::vector<Value> rest(items.begin() + static_cast<std::ptrdiff_t>(taken), items.end());
  taken = items.size();
  return rest;
}

LORA_INLINE Dict::Dict(Meter* meter, std::vector<Entry> fields)
    : entries(std::move(fields)), charge(meter, entries.size() * sizeof(Entry) + sizeof(Dict)) {
  for (const auto& [key, value] : entries) depth = std::max({depth, key.depth() + 1, value.depth() + 1});
}

}  // namespace lora::jinja

namespace lora::jinja::detail {

LORA_INLINE void expect_plain(const Meter& meter, const Value& value) {
  if (value.is(Value::Kind::space)) meter.fail("a namespace in a list, mapping or namespace is not supported");
  if (value.is(Value::Kind::loop)) meter.fail("the variable loop can only be asked for its fields");
  // A method holds its object, so that a chain of lists and methods would have no depth and any length.
  if (value.is(Value::Kind::function))
    meter.fail("a function in a list, mapping or namespace is not supported; it can be called, or have a name");
}

LORA_INLINE Value expect_shallow(const Meter& meter, Value value) {
  if (value.depth() > meter.limits().value_depth)
    meter.fail("lists and mappings are nested deeper than ", meter.limits().value_depth, " levels");
  return value;
}

}  // namespace lora::jinja::detail

namespace lora::jinja {

LORA_INLINE Value make_sequence(Meter& meter, Sequence::Form form, std::vector<Value> items) {
  meter.step(items.size() / 8);
  for (const Value& item : items) detail::expect_plain(meter, item);
  return detail::expect_shallow(meter, Value::of(std::make_shared<Sequence>(&meter, form, std::move(items))));
}

LORA_INLINE Value make_dict(Meter& meter, std::vector<Dict::Entry> entries) {
  meter.step(entries.size() / 8);
  for (const auto& [key, value] : entries) detail::expect_plain(meter, value);
  return detail::expect_shallow(meter, Value::of(std::make_shared<Dict>(&meter, std::move(entries))));
}

LORA_INLINE Value value_of(Meter& meter, const io::Json& json) {
  if (json.is_object()) {
    std::vector<Dict::Entry> entries;
    entries.reserve(json.size());
    for (const auto& [name, field] : io::json_fields(json))
      entries.emplace_back(Value::of(&meter, name), value_of(meter, field));
    return make_dict(meter, std::move(entries));
  }
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.size());
    for (std::size_t i = 0; i < json.size(); ++i) items.push_back(value_of(meter, json[i]));
    return make_list(meter, std::move(items));
  }
  if (json.is_string()) return Value::of(&meter, json.get<std::string>());
  if (json.is_boolean()) return Value::of(json.get<bool>());
  if (json.is_null()) return Value::none();
  // The JSON parser reads integers past 64 bits as floating point numbers; Python would keep their digits.
  const double number = json.get<double>();
  if (json.is_number_float() ? number >= 0x1p64 || number <= -0x1p63
                             : json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX)
    lora::fail<FormatError>("the number ", io::to_text(json, -1), "; expected one above -2^63 and below 2^63");
  return json.is_number_float() ? Value::of(number) : Value::of(json.get<std::int64_t>());
}

}  // namespace lora::jinja
