#pragma once

#include <concepts>
#include <optional>
#include <type_traits>

#include "lora/core/precision.hpp"
#include "lora/cpu/kernels.hpp"
#include "lora/model/weights.hpp"
#include "lora/settings/config.hpp"

// The device and the precision that settings name. This is the only place that names devices: programs and library code
// get their types from here.

namespace lora::inputs {

/// Calls f(make), where make() is a new device: for those that keep it.
template <class F>
decltype(auto) with_device_maker(const settings::Config& config, F&& f) {
  return f([&] { return cpu::Device(static_cast<int>(config.threads.value_or(0))); });
}

/// Calls f(dev).
template <class F>
decltype(auto) with_device(const settings::Config& config, F&& f) {
  return with_device_maker(config, [&](const auto& make) -> decltype(auto) {
    auto dev = make();
    return f(dev);
  });
}

/// As set, or for "auto" bfloat16 if the model is stored in it and the device has instructions for it.
template <AnyDevice D>
Precision precision_of(D& dev, const settings::Config& config, const model::Source& source) {
  if (const auto named = precision_named(config.dtype)) return *named;
  return source.stored_dtype() == DType::bf16 && has_bf16_products(dev) ? Precision::bfloat16 : Precision::float32;
}

/// Calls f(std::type_identity<T>()) with the type that computes in a precision.
template <class F>
decltype(auto) with_precision(Precision precision, F&& f) {
  if (precision == Precision::float16) return f(std::type_identity<f16>());
  return precision == Precision::bfloat16 ? f(std::type_identity<bf16>()) : f(std::type_identity<float>());
}

/// The host's threads beside a device, which read and tokenize: its own if it is the processors.
template <AnyDevice D>
class HostThreads {
 public:
  /// Where they are not the device's, as many as the settings say.
  HostThreads(const D& dev, const settings::Config& config) {
    if constexpr (std::derived_from<D, cpu::Threads>) {
      threads_ = &dev;
    } else {
      threads_ = &own_.emplace(static_cast<int>(config.threads.value_or(0)));
    }
  }
  HostThreads(const HostThreads&) = delete;
  HostThreads& operator=(const HostThreads&) = delete;

  const cpu::Threads& operator*() const { return *threads_; }

 private:
  std::optional<cpu::Threads> own_;
  const cpu::Threads* threads_;
};

}  // namespace lora::inputs
