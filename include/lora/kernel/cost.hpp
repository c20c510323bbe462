#pragma once

#include <string_view>

#include "lora/tensor/profile_scope.hpp"
#include "lora/tensor/view.hpp"

namespace lora::kernel {

/// Bytes of these views, each once.
template <class... Views>
double bytes_of(const Views&... views) {
  return (0.0 + ... + (static_cast<double>(views.size()) * sizeof(typename Views::Element)));
}

/// The product of extents, as FLOPs are counted.
template <class... Extents>
double count_of(Extents... extents) {
  return (1.0 * ... * static_cast<double>(extents));
}

}  // namespace lora::kernel
