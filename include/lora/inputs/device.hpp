#pragma once

#include <chrono>
#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "lora/comm/on_host.hpp"
#include "lora/core/environment.hpp"
#include "lora/core/precision.hpp"
#include "lora/cpu/kernels.hpp"
#include "lora/model/weights/weights.hpp"
#include "lora/settings/config.hpp"
#include "lora/settings/device_name.hpp"
#if defined(LORA_WITH_ASCEND)
#  include "lora/ascend/kernels.hpp"
#  include "lora/ascend/runtime/choice.hpp"
#  include "lora/ascend/runtime/group.hpp"
#endif

// The device and the precision that settings name. This is the only place that names devices: programs and library code
// get their types from here.

namespace lora::inputs {

/// Calls f(make), where make() is a new device: for those that keep it.
/// Throws   ConfigError or DeviceError where the device that is named can't be used, or several processes were started
///          and are not to be `together`
template <class F>
decltype(auto) with_device_maker(const settings::Config& config, F&& f, bool together = false) {
  if (!together) expect_one_process();
  const settings::DeviceName name = settings::parse_device(config.device).value_or(settings::DeviceName{});
  using Kind = settings::DeviceName::Kind;
#if defined(LORA_WITH_ASCEND)
  const bool any = name.kind == Kind::automatic;
  if (const auto npu = name.kind == Kind::cpu ? std::nullopt : ascend::choose(name.ids, any, config.device_type)) {
    ascend::DeviceSettings chosen = *npu;
    chosen.deterministic = config.full_determinism.value_or(true);
    chosen.threads = static_cast<int>(config.threads.value_or(cpu::available_threads()));
    return f([chosen] { return ascend::Device(chosen); });
  }
#else
  if (name.kind == Kind::ascend)
    fail<ConfigError>("key device: given ", config.device,
                      ", but this program was built without Ascend NPUs; allowed: cpu; ",
                      "hint: a program that links lora::ascend has them");
#endif
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

/// The devices of all these ranks, this rank's being `dev`. Both outlive it.
/// Throws   DeviceError where they can't be connected
template <AnyDevice D>
std::unique_ptr<comm::Communicator<D>> communicator_of([[maybe_unused]] D& dev, comm::HostRanks& ranks,
                                                       [[maybe_unused]] std::chrono::duration<double> timeout) {
#if defined(LORA_WITH_ASCEND)
  if constexpr (std::same_as<D, ascend::Device>)
    return std::make_unique<ascend::Group>(dev, ranks, timeout);
  else
#endif
    return std::make_unique<comm::OnHost<D>>(ranks);
}

/// As set, or for "auto" what the device computes best in for a model that is stored as this one.
template <AnyDevice D>
Precision precision_of(D& dev, const settings::Config& config, const model::Source& source) {
  if (const auto named = precision_named(config.dtype)) return *named;
  return preferred_precision(dev, source.stored_dtype());
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
