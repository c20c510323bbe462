#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/jinja/operations.hpp"
#include "lora/jinja/python_text.hpp"

namespace lora::jinja::detail {

/// Numbers, exactly also where an integer has no double.
LORA_INLINE std::partial_ordering compare_numbers(const Value& a, const Value& b) {
  if (a.is_whole() && b.is_whole()) return a.whole() <=> b.whole();
  if (a.is_whole()) return 0 <=> compare_numbers(b, a);
  if (!b.is_whole()) return a.real() <=> b.real();
  const double real = a.real();
  if (std::isnan(real)) return std::partial_ordering::unordered;
  if (real >= 0x1p63) return std::partial_ordering::greater;
  if (real < -0x1p63) return std::partial_ordering::less;
  const double floor = std::floor(real);
  const auto whole = static_cast<std::int64_t>(floor);
  if (whole != b.whole()) return whole <=> b.whole();
  return real > floor ? std::partial_ordering::greater : std::partial_ordering::equivalent;
}

[[noreturn]] LORA_INLINE void refuse(const Meter& meter, std::string_view operation, const Value& a, const Value& b) {
  meter.fail(operation, " is not defined for ", kind_name(a), " and ", kind_name(b));
}

}  // namespace lora::jinja::detail

namespace lora::jinja {

LORA_INLINE bool equal(Meter& meter, const Value& a, const Value& b) {
  meter.step();
  if (a.is_number() && b.is_number()) return detail::compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Value::Kind::text:
      meter.read(std::min(a.text().size(), b.text().size()));
      return a.text() == b.text();
    case Value::Kind::sequence: {
      const Sequence &left = a.sequence(), &right = b.sequence();
      if (&left == &right) return true;
      if (left.form != right.form) return false;
      if (left.form == Sequence::Form::stream) return false;
      if (left.form == Sequence::Form::view) meter.fail("comparing views of mappings is not supported");
      if (left.items.size() != right.items.size()) return false;
      for (std::size_t i = 0; i < left.items.size(); ++i)
        if (!equal(meter, left.items[i], right.items[i])) return false;
      return true;
    }
    case Value::Kind::dict: {
      const Dict &left = a.dict(), &right = b.dict();
      if (&left == &right) return true;
      if (left.entries.size() != right.entries.size()) return false;
      for (const auto& [key, value] : left.entries) {
        const Value* other = find(meter, right, key);
        if (other == nullptr || !equal(meter, value, *other)) return false;
      }
      return true;
    }
    case Value::Kind::space:
      return &a.space() == &b.space();
    case Value::Kind::function:
    case Value::Kind::loop:
      meter.fail("comparing functions is not supported");
    default:
      return true;  // undefined, none
  }
}

LORA_INLINE std::partial_ordering order(Meter& meter, const Value& a, const Value& b, std::string_view operation) {
  meter.step();
  if (a.is_number() && b.is_number()) return detail::compare_numbers(a, b);
  if (a.is_text() && b.is_text()) {
    meter.read(std::min(a.text().size(), b.text().size()));
    return a.text().compare(b.text()) <=> 0;
  }
  if (!a.is(Value::Kind::sequence) || !b.is(Value::Kind::sequence)) detail::refuse(meter, operation, a, b);
  const Sequence &left = a.sequence(), &right = b.sequence();
  if (left.form != right.form || (left.form != Sequence::Form::list && left.form != Sequence::Form::tuple))
    detail::refuse(meter, operation, a, b);
  for (std::size_t i = 0; i < std::min(left.items.size(), right.items.size()); ++i)
    if (!equal(meter, left.items[i], right.items[i])) return order(meter, left.items[i], right.items[i], operation);
  return left.items.size() <=> right.items.size();
}

LORA_INLINE const Value* find(Meter& meter, const Dict& dict, const Value& key) {
  if (key.is(Value::Kind::dict) || (key.is(Value::Kind::sequence) && key.sequence().form == Sequence::Form::list))
    meter.fail(kind_name(key), " is no key of a mapping");
  meter.step(dict.entries.size() / 8);
  for (const auto& [name, value] : dict.entries) {
    if (key.is_text() ? name.is_text() && name.text() == key.text() : !name.is_text() && equal(meter, name, key))
      return &value;
  }
  return nullptr;
}

LORA_INLINE bool contains(Meter& meter, const Value& container, const Value& item) {
  if (container.is_text()) {
    if (!item.is_text()) detail::refuse(meter, "in", item, container);
    meter.read(container.text().size() * (1 + item.text().size() / 64));
    return container.text().find(item.text()) != std::string::npos;
  }
  if (container.is(Value::Kind::dict)) return find(meter, container.dict(), item) != nullptr;
  if (container.is_undefined()) return false;
  if (!container.is(Value::Kind::sequence)) detail::refuse(meter, "in", item, container);
  Sequence& sequence = container.sequence();
  if (sequence.form != Sequence::Form::stream)
    return std::any_of(sequence.items.begin(), sequence.items.end(),
                       [&](const Value& each) { return equal(meter, each, item); });
  while (sequence.taken < sequence.items.size())
    if (equal(meter, sequence.items[sequence.taken++], item)) return true;
  return false;
}

}  // namespace lora::jinja

namespace lora::jinja::detail {

LORA_INLINE std::string_view sign_of(Operator operation) {
  switch (operation) {
    case Operator::add:
      return "+";
    case Operator::subtract:
      return "-";
    case Operator::multiply:
      return "*";
    case Operator::divide:
      return "/";
    case Operator::divide_whole:
      return "//";
    case Operator::modulo:
      return "%";
    case Operator::power:
      return "**";
    case Operator::less:
      return "<";
    case Operator::less_equal:
      return "<=";
    case Operator::greater:
      return ">";
    default:
      return ">=";
  }
}

LORA_INLINE void refuse_large(const Meter& meter) { meter.fail("integers beyond 64 bits are not supported"); }

LORA_INLINE std::int64_t whole_power(const Meter& meter, std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  while (true) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) refuse_large(meter);
    exponent >>= 1;
    if (exponent == 0) return result;
    if (__builtin_mul_overflow(base, base, &base)) refuse_large(meter);
  }
}

LORA_INLINE Value whole_arithmetic(const Meter& meter, Operator operation, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  switch (operation) {
    case Operator::add:
      if (__builtin_add_overflow(a, b, &result)) refuse_large(meter);
      return Value::of(result);
    case Operator::subtract:
      if (__builtin_sub_overflow(a, b, &result)) refuse_large(meter);
      return Value::of(result);
    case Operator::multiply:
      if (__builtin_mul_overflow(a, b, &result)) refuse_large(meter);
      return Value::of(result);
    case Operator::power:
      if (b >= 0) return Value::of(whole_power(meter, a, b));
      if (a == 0) meter.fail("0 has no negative power");
      return Value::of(std::pow(static_cast<double>(a), static_cast<double>(b)));
    default:
      break;
  }
  if (b == 0) meter.fail("division by zero");
  if (operation == Operator::divide) {
    constexpr std::int64_t exact = std::int64_t{1} << 53;
    if (a > exact || a < -exact || b > exact || b < -exact) meter.fail("integers beyond 53 bits can't be divided by /");
    return Value::of(static_cast<double>(a) / static_cast<double>(b));
  }
  if (b == -1) {
    if (operation == Operator::modulo) return Value::of(std::int64_t{0});
    if (__builtin_sub_overflow(std::int64_t{0}, a, &result)) refuse_large(meter);
    return Value::of(result);
  }
  const std::int64_t rest = a % b, shift = rest != 0 && (rest < 0) != (b < 0) ? 1 : 0;
  return Value::of(operation == Operator::modulo ? rest + shift * b : a / b - shift);
}

/// Python's divmod of floating point numbers.
LORA_INLINE Value real_division(const Meter& meter, Operator operation, double a, double b) {
  if (b == 0) meter.fail("division by zero");
  double rest = std::fmod(a, b), quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) {
    rest += b;
    quotient -= 1;
  } else if (rest == 0) {
    rest = std::copysign(0.0, b);
  }
  if (operation == Operator::modulo) return Value::of(rest);
  if (quotient == 0) return Value::of(std::copysign(0.0, a / b));
  const double floor = std::floor(quotient);
  return Value::of(quotient - floor > 0.5 ? floor + 1 : floor);
}

LORA_INLINE Value real_arithmetic(const Meter& meter, Operator operation, double a, double b) {
  switch (operation) {
    case Operator::add:
      return Value::of(a + b);
    case Operator::subtract:
      return Value::of(a - b);
    case Operator::multiply:
      return Value::of(a * b);
    case Operator::divide:
      if (b == 0) meter.fail("division by zero");
      return Value::of(a / b);
    case Operator::power: {
      const double result = std::pow(a, b);
      const bool fits = std::isfinite(result) || !std::isfinite(a) || !std::isfinite(b);
      if (!fits) meter.fail(python_number(a), " ** ", python_number(b), " is no number");
      return Value::of(result);
    }
    default:
      return real_division(meter, operation, a, b);
  }
}

LORA_INLINE Value repeated(Meter& meter, const Value& value, std::int64_t count) {
  const auto times = static_cast<std::size_t>(std::max<std::int64_t>(count, 0));
  if (value.is_text()) {
    const std::string& text = value.text();
    if (!text.empty() && times > meter.limits().text / text.size()) meter.expect_text(meter.limits().text + 1);
    std::string all;
    meter.read(text.size() * times);
    for (std::size_t i = 0; i < times && !text.empty(); ++i) all += text;
    return Value::of(&meter, std::move(all));
  }
  const std::vector<Value>& items = value.sequence().items;
  if (!items.empty() && times > meter.limits().memory / sizeof(Value) / items.size())
    meter.take(meter.limits().memory + 1);
  std::vector<Value> all;
  for (std::size_t i = 0; i < times && !items.empty(); ++i) {
    meter.step(1 + items.size() / 8);
    all.insert(all.end(), items.begin(), items.end());
  }
  return make_sequence(meter, value.sequence().form, std::move(all));
}

}  // namespace lora::jinja::detail

namespace lora::jinja {

LORA_INLINE Value arithmetic(Meter& meter, Operator operation, const Value& a, const Value& b) {
  if (a.is_whole() && b.is_whole()) return detail::whole_arithmetic(meter, operation, a.whole(), b.whole());
  if (a.is_number() && b.is_number()) return detail::real_arithmetic(meter, operation, a.real(), b.real());
  if (a.is_markup() || b.is_markup())
    meter.fail("what safe and escape give can be written, or joined with ~, but not used with ",
               detail::sign_of(operation));
  if (operation == Operator::add) {
    if (a.is_text() && b.is_text()) return TextBuilder(meter).add(a.text()).add(b.text()).value();
    if (detail::is_listed(a) && detail::is_listed(b) && a.sequence().form == b.sequence().form) {
      const std::vector<Value>&left = a.sequence().items, &right = b.sequence().items;
      meter.step((left.size() + right.size()) / 8);
      std::vector<Value> all;
      all.reserve(left.size() + right.size());
      all.insert(all.end(), left.begin(), left.end());
      all.insert(all.end(), right.begin(), right.end());
      return make_sequence(meter, a.sequence().form, std::move(all));
    }
  }
  if (operation == Operator::multiply) {
    if (b.is_whole() && (a.is_text() || detail::is_listed(a))) return detail::repeated(meter, a, b.whole());
    if (a.is_whole() && (b.is_text() || detail::is_listed(b))) return detail::repeated(meter, b, a.whole());
  }
  if (operation == Operator::modulo && a.is_text()) meter.fail("formatting a text by % is not supported");
  detail::refuse(meter, detail::sign_of(operation), a, b);
}

LORA_INLINE Value negative(Meter& meter, const Value& value) {
  if (value.is_whole()) return detail::whole_arithmetic(meter, Operator::subtract, 0, value.whole());
  if (!value.is_number()) meter.fail("- is not defined for ", kind_name(value));
  return Value::of(-value.real());
}

LORA_INLINE bool holds(Meter& meter, Operator operation, const Value& a, const Value& b) {
  switch (operation) {
    case Operator::equal:
      return equal(meter, a, b);
    case Operator::unequal:
      return !equal(meter, a, b);
    case Operator::in:
      return contains(meter, b, a);
    case Operator::not_in:
      return !contains(meter, b, a);
    default:
      break;
  }
  const std::partial_ordering found = order(meter, a, b, detail::sign_of(operation));
  return operation == Operator::less         ? found < 0
         : operation == Operator::less_equal ? found <= 0
         : operation == Operator::greater    ? found > 0
                                             : found >= 0;
}

}  // namespace lora::jinja

namespace lora::jinja::detail {

LORA_INLINE void write_inside(Meter& meter, TextBuilder& out, const Value& value);

LORA_INLINE void write_sequence(Meter& meter, TextBuilder& out, const Sequence& sequence) {
  if (sequence.form != Sequence::Form::list && sequence.form != Sequence::Form::tuple)
    meter.fail("writing a range, generator or view of a mapping is not supported; expected a list");
  const bool list = sequence.form == Sequence::Form::list;
  out.add(list ? "[" : "(");
  for (std::size_t i = 0; i < sequence.items.size(); ++i) {
    if (i > 0) out.add(", ");
    write_inside(meter, out, sequence.items[i]);
  }
  out.add(list ? "]" : sequence.items.size() == 1 ? ",)" : ")");
}

LORA_INLINE void write_inside(Meter& meter, TextBuilder& out, const Value& value) {
  meter.step();
  if (value.is_text()) {
    if (value.is_markup()) meter.fail("what safe and escape give is not supported in lists and mappings");
    std::string text;
    add_python_text(text, value.text());
    out.add(text);
  } else if (value.is_undefined()) {
    out.add("Undefined");
  } else {
    write(meter, out, value);
  }
}

}  // namespace lora::jinja::detail

namespace lora::jinja {

LORA_INLINE void write(Meter& meter, TextBuilder& out, const Value& value) {
  switch (value.kind()) {
    case Value::Kind::undefined:
      return;
    case Value::Kind::none:
      out.add("None");
      return;
    case Value::Kind::boolean:
      out.add(value.flag() ? "True" : "False");
      return;
    case Value::Kind::integer:
      out.add(concat(value.whole()));
      return;
    case Value::Kind::real:
      out.add(python_number(value.real()));
      return;
    case Value::Kind::text:
      out.add(value.text());
      return;
    case Value::Kind::sequence:
      return detail::write_sequence(meter, out, value.sequence());
    case Value::Kind::dict: {
      out.add("{");
      bool first = true;
      for (const auto& [key, field] : value.dict().entries) {
        if (!first) out.add(", ");
        first = false;
        detail::write_inside(meter, out, key);
        out.add(": ");
        detail::write_inside(meter, out, field);
      }
      out.add("}");
      return;
    }
    default:
      meter.fail("writing ", kind_name(value), " is not supported");
  }
}

LORA_INLINE Value as_text(Meter& meter, const Value& value) {
  if (value.is_text()) return value;
  TextBuilder out(meter);
  write(meter, out, value);
  return out.value();
}

LORA_INLINE std::size_t length(Meter& meter, const Value& value) {
  switch (value.kind()) {
    case Value::Kind::undefined:
      return 0;
    case Value::Kind::text:
      meter.read(value.text().size());
      return characters(value.text());
    case Value::Kind::dict:
      return value.dict().entries.size();
    case Value::Kind::sequence:
      if (value.sequence().form != Sequence::Form::stream) return value.sequence().items.size();
      [[fallthrough]];
    default:
      meter.fail(kind_name(value), " has no length");
  }
}

LORA_INLINE bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_text() || value.is(Value::Kind::dict) || value.is(Value::Kind::sequence) ||
         value.is(Value::Kind::loop);
}

LORA_INLINE Value iterable(Meter& meter, const Value& value) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Value::Kind::undefined:
      break;
    case Value::Kind::text:
      meter.step(value.text().size());
      for (std::size_t at = 0, bytes; at < value.text().size(); at += bytes) {
        bytes = bytes_at(value.text(), at);
        items.push_back(Value::of(&meter, value.text().substr(at, bytes)));
      }
      break;
    case Value::Kind::dict:
      for (const auto& entry : value.dict().entries) items.push_back(entry.first);
      break;
    case Value::Kind::sequence:
      if (value.sequence().form != Sequence::Form::stream) return value;
      items = value.sequence().take_all();
      break;
    default:
      meter.fail(kind_name(value), " has no items");
  }
  return make_list(meter, std::move(items));
}

}  // namespace lora::jinja
