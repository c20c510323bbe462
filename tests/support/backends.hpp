#pragma once

#include <doctest/doctest.h>

#include <concepts>
#include <string>

#include "support/proof_kernels.hpp"
#if defined(LORA_STAND_IN)
#  include "support/stand_in.hpp"
#endif

namespace lora::test {

/// Calls body.operator()<D>() for each backend: the same kernels must do on all of them.
template <class Body>
void each_backend(const Body& body) {
  SUBCASE("cpu") { body.template operator()<cpu::Device>(); }
  SUBCASE("proof") { body.template operator()<proof::Device>(); }
#if defined(LORA_STAND_IN)
  SUBCASE("ascend") {
    on_stand_in([&] { body.template operator()<ascend::Device>(); });
  }
#endif
}

/// Calls body.operator()<D, T>() for each backend and each element type that models compute in there; in double only
/// gradient checks do, on the CPU. `Partial`: backends that have this family and not yet all.
template <class... Partial, class Body>
void each_backend_and_type(const Body& body) {
  SUBCASE("cpu, f32") { body.template operator()<cpu::Device, float>(); }
  SUBCASE("cpu, bf16") { body.template operator()<cpu::Device, bf16>(); }
  SUBCASE("cpu, f64") { body.template operator()<cpu::Device, double>(); }
  SUBCASE("proof, f32") { body.template operator()<proof::Device, float>(); }
  SUBCASE("proof, bf16") { body.template operator()<proof::Device, bf16>(); }
#if defined(LORA_STAND_IN)
  SUBCASE("ascend, f32") {
    on_stand_in([&] { body.template operator()<ascend::Device, float>(); });
  }
  SUBCASE("ascend, bf16") {
    on_stand_in([&] { body.template operator()<ascend::Device, bf16>(); });
  }
#endif
  [[maybe_unused]] const auto partial = [&body]<class D>(const std::string& name) {
    SUBCASE((name + ", f32").c_str()) { body.template operator()<D, float>(); }
    SUBCASE((name + ", bf16").c_str()) { body.template operator()<D, bf16>(); }
  };
  (partial.template operator()<Partial>(Partial().describe()), ...);
}

/// Of other backends fewer cases do where there are many: what a case computes is the CPU's to show.
template <class D>
constexpr bool is_cpu = std::same_as<D, cpu::Device>;

}  // namespace lora::test
