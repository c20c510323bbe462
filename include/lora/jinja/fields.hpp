#pragma once

#include <string_view>

#include "lora/jinja/value.hpp"

// What is asked of a value by a name, a key or a range of places. All throw FormatError where Jinja raises an error,
// and for what is not supported.

namespace lora::jinja {

/// `object.name`, `object[key]` and `object[from:to:step]`.
Value attribute(Meter& meter, const Value& object, std::string_view name);
Value item(Meter& meter, const Value& object, const Value& key);
Value slice(Meter& meter, const Value& object, const Value& from, const Value& to, const Value& step);

}  // namespace lora::jinja

#ifndef LORA_COMPILED
#  include "lora/jinja/fields.ipp"
#endif
