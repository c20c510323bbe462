#pragma once

#include "lora/core/config.hpp"
#include "lora/model/weights/encoded.hpp"

namespace lora::model::detail {

[[noreturn]] LORA_INLINE void fail_encoding(const std::string& name, DType dtype, float stored, float value) {
  fail<NonFiniteError>("the merged tensor ", name, " would hold ", stored, " as ", name_of(dtype), " (", value,
                       " before rounding); expected finite numbers");
}

/// Source   ggml-quants.c, quantize_row_q8_0_ref
LORA_INLINE void encode_q8_0(std::span<const float> values, std::byte* to, const std::string& name) {
  constexpr auto width = static_cast<std::size_t>(block_elements(DType::q8_0));
  for (std::size_t begin = 0; begin < values.size(); begin += width) {
    const auto block = values.subspan(begin, width);
    float largest = 0;
    for (const float value : block) {
      if (!std::isfinite(value)) fail_encoding(name, DType::q8_0, value, value);
      largest = std::max(largest, std::abs(value));
    }
    const float scale = largest / 127.0f, inverse = scale != 0 ? 1.0f / scale : 0.0f;
    const f16 stored(scale);
    if (!std::isfinite(static_cast<float>(stored)))
      fail_encoding(name, DType::q8_0, static_cast<float>(stored) * 127.0f, largest);
    std::memcpy(to, &stored, sizeof stored);
    to += sizeof stored;
    for (const float value : block) *to++ = static_cast<std::byte>(static_cast<int>(std::round(value * inverse)));
  }
}

}  // namespace lora::model::detail

namespace lora::model {

LORA_INLINE std::vector<std::byte> encoded(std::span<const float> values, DType dtype, const std::string& name) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(bytes_of(dtype, static_cast<Index>(values.size()))));
  const auto put = [&]<class S>(S) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const S value(values[i]);
      if (!std::isfinite(static_cast<float>(value)))
        detail::fail_encoding(name, dtype, static_cast<float>(value), values[i]);
      std::memcpy(bytes.data() + i * sizeof(S), &value, sizeof(S));
    }
  };
  switch (dtype) {
    case DType::f32:
      put(float{});
      break;
    case DType::bf16:
      put(bf16{});
      break;
    case DType::f16:
      put(f16{});
      break;
    case DType::q8_0:
      detail::encode_q8_0(values, bytes.data(), name);
      break;
    default:
      fail<FormatError>("the tensor ", name, " can't be written as ", name_of(dtype));
  }
  return bytes;
}

}  // namespace lora::model
