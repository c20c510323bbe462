#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "lora/jinja/builtins.hpp"

namespace lora::jinja {

/// The filter, or test, of that name; nothing if there is none that is supported.
std::optional<std::uint32_t> filter_named(std::string_view name);
std::optional<std::uint32_t> test_named(std::string_view name);

const Signature& filter_signature(std::uint32_t filter);
const Signature& test_signature(std::uint32_t test);

/// Of a filter whose arguments name another filter, or a test: which argument does.
struct Named {
  bool filter;  ///< not a test
  std::size_t argument;
};
std::optional<Named> names_another(std::uint32_t filter);

/// `arguments`: in the order of the signature.
Value apply_filter(Meter& meter, std::uint32_t filter, const Value& value, std::span<const Value> arguments);
bool apply_test(Meter& meter, std::uint32_t test, const Value& value, std::span<const Value> arguments);

}  // namespace lora::jinja

#ifndef LORA_COMPILED
#  include "lora/jinja/filters.ipp"
#endif
