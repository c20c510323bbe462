#pragma once

#include "lora/core/config.hpp"
#include "lora/io/formats/tensor_order.hpp"

namespace lora::io {

LORA_INLINE TensorOrder::TensorOrder(Path file, std::vector<TensorDeclaration> tensors)
    : file_(std::move(file)), tensors_(std::move(tensors)) {
  std::vector<std::string_view> names;
  for (const TensorDeclaration& tensor : tensors_) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin != names.end()) fail<FormatError>(where(*twin), ": this name is declared twice");
  skip_empty();
}

LORA_INLINE bool TensorOrder::take(std::string_view name, std::size_t size) {
  if (size == 0) return false;
  if (complete() || tensors_[next_].name != name)
    fail<FormatError>(where(name), ": data given out of order; the next tensor is ",
                      complete() ? std::string("none") : tensors_[next_].name);
  if (size > left_) fail<FormatError>(where(name), ": ", size, " bytes given where ", left_, " are left");
  left_ -= size;
  if (left_ > 0) return false;
  ++next_;
  skip_empty();
  return true;
}

LORA_INLINE void TensorOrder::expect_complete() const {
  if (!complete()) fail<FormatError>(where(tensors_[next_].name), ": its data are not complete");
}

LORA_INLINE void TensorOrder::skip_empty() {
  for (; next_ < tensors_.size(); ++next_) {
    left_ = static_cast<std::size_t>(bytes_of(tensors_[next_].dtype, tensors_[next_].shape.count()));
    if (left_ > 0) return;
  }
}

}  // namespace lora::io
