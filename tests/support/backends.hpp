#pragma once

#include <doctest/doctest.h>

#include <concepts>
#include <cstddef>
#include <string>
#include <vector>

#include "support/effort.hpp"
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

/// Calls body.operator()<D, T>() for each backend but the CPU and each element type that models compute in.
template <class Body>
void each_other_backend_and_type(const Body& body) {
  SUBCASE("proof, f32") { body.template operator()<proof::Device, float>(); }
  if (effort(true, false, "kernels and modules on the proof device in bf16")) SUBCASE("proof, bf16") {
      body.template operator()<proof::Device, bf16>();
    }
#if defined(LORA_STAND_IN)
  SUBCASE("ascend, f32") {
    on_stand_in([&] { body.template operator()<ascend::Device, float>(); });
  }
  SUBCASE("ascend, bf16") {
    on_stand_in([&] { body.template operator()<ascend::Device, bf16>(); });
  }
#endif
}

/// Calls body.operator()<D, T>() for each backend and each element type that models compute in there; in double only
/// gradient checks do, on the CPU. `Partial`: backends that have this family and not yet all.
template <class... Partial, class Body>
void each_backend_and_type(const Body& body) {
  SUBCASE("cpu, f32") { body.template operator()<cpu::Device, float>(); }
  SUBCASE("cpu, bf16") { body.template operator()<cpu::Device, bf16>(); }
  if (effort(true, false, "kernels and modules on the processors in f64")) SUBCASE("cpu, f64") {
      body.template operator()<cpu::Device, double>();
    }
  each_other_backend_and_type(body);
  [[maybe_unused]] const auto partial = [&body]<class D>(const std::string& name) {
    SUBCASE((name + ", f32").c_str()) { body.template operator()<D, float>(); }
    SUBCASE((name + ", bf16").c_str()) { body.template operator()<D, bf16>(); }
  };
  (partial.template operator()<Partial>(Partial().describe()), ...);
}

/// Whether a backend reads weights as files have them, wherever they begin; else they come aligned, and as plain
/// numbers of 16 or 32 bits.
template <class D>
constexpr bool reads_files = !D::splits_blocks;
constexpr bool is_plain(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

/// Rows of a weight as kernels of the backend take them.
template <class D>
std::vector<std::byte> as_read_by(const std::vector<std::byte>& rows, DType dtype, Index cols) {
  if (!D::splits_blocks || dtype != DType::q8_0 || rows.empty()) return rows;
  std::vector<std::byte> split;
  const std::size_t row_bytes = static_cast<std::size_t>(bytes_of(dtype, cols));
  for (std::size_t row = 0; row < rows.size(); row += row_bytes) {
    for (std::size_t i = 0; i < row_bytes; ++i)  // quanta behind 2 bytes of each 34
      if (i % 34 >= 2) split.push_back(rows[row + i]);
    for (std::size_t i = 0; i < row_bytes; ++i)
      if (i % 34 < 2) split.push_back(rows[row + i]);
  }
  return split;
}

/// 1 where a backend rounds the parts of a result to T, whose errors then count, and 0 where it rounds results only.
template <class D>
constexpr double rounds_parts = std::same_as<typename D::Sum, float> ? 1 : 0;

/// Of other backends fewer cases do where there are many: what a case computes is the CPU's to show.
template <class D>
constexpr bool is_cpu = std::same_as<D, cpu::Device>;

}  // namespace lora::test
