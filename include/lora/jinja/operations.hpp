#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lora/jinja/builtins.hpp"
#include "lora/jinja/syntax.hpp"
#include "lora/jinja/value.hpp"

// What Python and Jinja do with values. All throw FormatError where these raise an error, and for what is not
// supported.

namespace lora::jinja {

/// Python's ==.
bool equal(Meter& meter, const Value& a, const Value& b);
/// Python's < and its like; `operation` for the error. Of numbers that don't compare, such as NaN, all are false.
std::partial_ordering order(Meter& meter, const Value& a, const Value& b, std::string_view operation);
/// Python's `item in container`.
bool contains(Meter& meter, const Value& container, const Value& item);

/// + - * / // % **
Value arithmetic(Meter& meter, Operator operation, const Value& a, const Value& b);
Value negative(Meter& meter, const Value& value);
/// ==, <, in and their like.
bool holds(Meter& meter, Operator operation, const Value& a, const Value& b);

/// Python's str(), which is what is written of a value; empty of an undefined one.
void write(Meter& meter, TextBuilder& out, const Value& value);
/// write as a text; texts stay what they are.
Value as_text(Meter& meter, const Value& value);

/// Python's len().
std::size_t length(Meter& meter, const Value& value);
/// The items that an iteration goes over, as a sequence; those of a generator are then gone.
Value iterable(Meter& meter, const Value& value);
bool is_iterable(const Value& value);

/// The value of a key; null if there is none.
const Value* find(Meter& meter, const Dict& dict, const Value& key);

namespace detail {

[[noreturn]] void refuse_large(const Meter& meter);

/// A power of an integer that is not below 0.
std::int64_t whole_power(const Meter& meter, std::int64_t base, std::int64_t exponent);

/// Whether it is a list or tuple.
inline bool is_listed(const Value& value) {
  return value.is(Value::Kind::sequence) &&
         (value.sequence().form == Sequence::Form::list || value.sequence().form == Sequence::Form::tuple);
}

}  // namespace detail

}  // namespace lora::jinja

#ifndef LORA_COMPILED
#  include "lora/jinja/operations.ipp"
#endif
