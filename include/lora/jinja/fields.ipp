#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/jinja/fields.hpp"
#include "lora/jinja/loop.hpp"
#include "lora/jinja/methods.hpp"
#include "lora/jinja/operations.hpp"
#include "lora/jinja/python_text.hpp"

namespace lora::jinja {

LORA_INLINE Value attribute(Meter& meter, const Value& object, std::string_view name) {
  if (object.is_undefined()) meter.fail("the field ", name, " of an undefined value");
  if (object.is(Value::Kind::space)) {
    for (const auto& [field, value] : object.space().fields)
      if (field == name) return value;
    return {};
  }
  if (auto method = method_of(meter, object, name)) return *std::move(method);
  if (object.is(Value::Kind::loop)) return object.loop().field(meter, name);
  if (!object.is(Value::Kind::dict)) return {};
  const Value* value = find(meter, object.dict(), Value::of(nullptr, std::string(name)));
  return value == nullptr ? Value() : *value;
}

LORA_INLINE Value item(Meter& meter, const Value& object, const Value& key) {
  if (object.is_undefined()) {
    TextBuilder name(meter);
    write(meter, name, key);
    meter.fail("the item ", name.take(), " of an undefined value");
  }
  const bool listed = object.is(Value::Kind::sequence) && object.sequence().form != Sequence::Form::stream &&
                      object.sequence().form != Sequence::Form::view;
  if (key.is_whole() && (listed || object.is_text())) {
    const auto count = static_cast<std::int64_t>(length(meter, object));
    const std::int64_t place = key.whole() < 0 ? key.whole() + count : key.whole();
    if (place < 0 || place >= count) return {};
    if (listed) return object.sequence().items[static_cast<std::size_t>(place)];
    const std::size_t at = place_of(object.text(), static_cast<std::size_t>(place));
    return Value::of(&meter, object.text().substr(at, bytes_at(object.text(), at)), object.is_markup());
  }
  if (object.is(Value::Kind::dict)) {
    const bool hashes =
        !key.is(Value::Kind::dict) && !(key.is(Value::Kind::sequence) && key.sequence().form == Sequence::Form::list);
    const Value* value = hashes ? find(meter, object.dict(), key) : nullptr;
    if (value != nullptr) return *value;
  }
  return key.is_text() ? attribute(meter, object, key.text()) : Value();
}

LORA_INLINE Value slice(Meter& meter, const Value& object, const Value& from, const Value& to, const Value& step) {
  const bool listed = detail::is_listed(object);
  if (!listed && !object.is_text()) meter.fail("a slice of ", kind_name(object), "; expected a text or a list");
  const auto given = [&](const Value& value) { return !value.is_absent() && !value.is_none(); };
  for (const Value* bound : {&from, &to, &step})
    if (given(*bound) && !bound->is_whole()) meter.fail("a slice up to ", kind_name(*bound), "; expected an integer");
  const std::int64_t stride = given(step) ? step.whole() : 1;
  if (stride == 0) meter.fail("the step of a slice is 0");
  const auto count = static_cast<std::int64_t>(length(meter, object));
  const std::int64_t low = stride < 0 ? -1 : 0, high = stride < 0 ? count - 1 : count;
  const auto bound = [&](const Value& value, std::int64_t otherwise) {
    if (!given(value)) return otherwise;
    if (value.whole() < 0) return value.whole() < -count ? low : std::max(value.whole() + count, low);
    return std::min(value.whole(), high);
  };
  const std::int64_t begin = bound(from, stride < 0 ? high : low), end = bound(to, stride < 0 ? low : high);
  if (object.is_text() && stride == 1) {
    const std::size_t first = place_of(object.text(), static_cast<std::size_t>(begin));
    const std::string_view rest = std::string_view(object.text()).substr(first);
    const std::size_t taken = place_of(rest, static_cast<std::size_t>(std::max<std::int64_t>(end - begin, 0)));
    return Value::of(&meter, std::string(rest.substr(0, taken)), object.is_markup());
  }
  std::vector<std::int64_t> places;
  for (std::int64_t at = begin; stride < 0 ? at > end : at < end;) {
    places.push_back(at);
    if (stride > count || stride < -count) break;
    at += stride;
  }
  meter.step(places.size() / 8);
  if (listed) {
    std::vector<Value> items;
    items.reserve(places.size());
    for (const std::int64_t at : places) items.push_back(object.sequence().items[static_cast<std::size_t>(at)]);
    return make_sequence(meter, object.sequence().form, std::move(items));
  }
  const std::string& text = object.text();
  std::vector<std::size_t> begins;
  for (std::size_t at = 0; at < text.size(); at += bytes_at(text, at)) begins.push_back(at);
  TextBuilder out(meter);
  for (const std::int64_t at : places) {
    const std::size_t first = begins[static_cast<std::size_t>(at)];
    out.add(std::string_view(text).substr(first, bytes_at(text, first)));
  }
  return out.value(object.is_markup());
}

}  // namespace lora::jinja
