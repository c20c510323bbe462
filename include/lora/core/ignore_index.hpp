#pragma once

#include <cstdint>

namespace lora {

/// The label of a token that has no loss, with PyTorch's name and value.
inline constexpr std::int32_t ignore_index = -100;

}  // namespace lora
