#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "lora/core/scalar.hpp"

namespace lora {

/// The type that a model computes in.
enum class Precision : std::uint8_t { float32, bfloat16, float16 };

/// As the key dtype and files call them.
constexpr std::array<std::string_view, 3> precision_names{"float32", "bfloat16", "float16"};

constexpr std::string_view name_of(Precision precision) { return precision_names[static_cast<std::size_t>(precision)]; }

/// Nothing for another text, such as "auto".
constexpr std::optional<Precision> precision_named(std::string_view name) {
  for (std::size_t i = 0; i < precision_names.size(); ++i)
    if (precision_names[i] == name) return static_cast<Precision>(i);
  return std::nullopt;
}

/// How weights of a precision are stored.
constexpr DType stored_dtype(Precision precision) {
  return precision == Precision::float32 ? DType::f32 : precision == Precision::bfloat16 ? DType::bf16 : DType::f16;
}

/// The precision of models that compute in T.
template <class T>
  requires(std::same_as<T, float> || std::same_as<T, bf16> || std::same_as<T, f16>)
constexpr Precision precision_of() {
  return std::same_as<T, float> ? Precision::float32 : std::same_as<T, bf16> ? Precision::bfloat16 : Precision::float16;
}

}  // namespace lora
