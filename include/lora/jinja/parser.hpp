#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lora/jinja/builtins.hpp"
#include "lora/jinja/syntax.hpp"

namespace lora::jinja {

/// The syntax tree of a template. `name`: of the template in errors.
/// Throws   FormatError with the place for what is no Jinja, or not supported
Tree parse(std::string_view text, const std::string& name);

/// The functions that every template knows, by their place in this list.
enum class Global : std::uint32_t { dict, name_space, raise_exception, range, strftime_now };
const Signature& global_signature(std::uint32_t global);
std::optional<std::uint32_t> global_named(std::string_view name);

}  // namespace lora::jinja

#ifndef LORA_COMPILED
#  include "lora/jinja/parser.ipp"
#endif
