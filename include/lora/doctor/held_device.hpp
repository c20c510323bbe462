#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

#include "lora/core/error.hpp"
#include "lora/tensor/device.hpp"

namespace lora::doctor {

/// A device that is opened again where an error has left it unusable, so that what is checked next has a chance.
template <class Make>
class HeldDevice {
 public:
  using Device = std::invoke_result_t<const Make&>;

  explicit HeldDevice(const Make& make) : make_(make) {}

  /// Throws   DeviceError where it can't be opened; after several times in a row it is not tried any more
  Device& get() {
    if (device_) return *device_;
    constexpr int most = 3;
    if (failures_ == most) fail<DeviceError>("the device could not be opened ", most, " times in a row");
    ++failures_;
    device_.reset(new Device(make_()));
    failures_ = 0;
    return *device_;
  }

  /// To be called after an error of its work, when nothing of it is held any more.
  void look_after() noexcept {
    if (!device_) return;
    try {
      device_->synchronize();
    } catch (...) {
      device_.reset();
    }
  }
  void close() noexcept { device_.reset(); }

 private:
  const Make& make_;
  std::unique_ptr<Device> device_;
  int failures_ = 0;
};

}  // namespace lora::doctor
