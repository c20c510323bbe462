#pragma once

#include <cstddef>
#include <utility>

#include "lora/tensor/device.hpp"

namespace lora {

/// Owns memory of the host from which, and to which, copies run beside everything else. The device outlives it, and its
/// owner sees to it that no copy uses it any more when it goes.
template <AnyDevice D>
class PageLocked {
 public:
  PageLocked() = default;
  PageLocked(D& dev, std::size_t bytes)
      : device_(&dev), data_(bytes > 0 ? static_cast<std::byte*>(dev.allocate_host(bytes)) : nullptr), bytes_(bytes) {}
  PageLocked(PageLocked&& other) noexcept { swap(other); }
  PageLocked& operator=(PageLocked&& other) noexcept {
    PageLocked(std::move(other)).swap(*this);
    return *this;
  }
  ~PageLocked() {
    if (data_ != nullptr) device_->free_host(data_, bytes_);
  }

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void swap(PageLocked& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  D* device_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace lora
