#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lora/jinja/limits.hpp"
#include "lora/jinja/value.hpp"

// What filters, tests, methods and global functions have in common.

namespace lora::jinja {

/// What a function takes: its parameters, of which the first ones must be given. One that begins with a dot can't be
/// given by its name. `*`: any further ones.
struct Signature {
  std::string_view name;
  std::string_view parameters = "";
  std::size_t required = 0;

  std::vector<std::string_view> list() const;
};

struct Function {
  enum class Kind : std::uint8_t { macro, global, method };

  Kind kind;
  std::uint32_t number;  ///< its place in the table
  Value self{};          ///< of a method
};

/// Where each of a call's arguments goes: `places[i]` is the parameter of the i-th argument. The last ones have names.
/// Empty if the signature does not take them, and then `problem` says why.
std::optional<std::vector<std::size_t>> places_of(const Signature& signature, std::size_t count,
                                                  std::span<const std::string> names, std::string& problem);

/// The arguments in the order of the parameters; absent those that were not given.
/// Throws   FormatError
std::vector<Value> arranged(Meter& meter, const Signature& signature, std::vector<Value> arguments,
                            std::span<const std::string> names);

/// What is said of a value in errors: "a text", "none".
std::string_view kind_name(const Value& value);

/// An argument of a kind, or what stands for one that was not given.
/// Throws   FormatError
std::int64_t whole_argument(Meter& meter, const Value& value, std::string_view name, std::int64_t otherwise);
bool flag_argument(const Value& value, bool otherwise);

}  // namespace lora::jinja

#ifndef LORA_COMPILED
#  include "lora/jinja/builtins.ipp"
#endif
