#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "lora/core/random.hpp"
#include "lora/cpu/kernels.hpp"
#include "lora/tensor/transfer.hpp"

namespace lora::forecast {

/// What this machine reaches at best, with as many threads as the device has. Benchmarks are shares of these, so that
/// figures from different machines can be compared, and forecasts of a step's time are made from them.
struct Limits {
  double f32_gflops = 0;     ///< of a large plain matrix product
  double bf16_gflops = 0;    ///< the same; below f32 where the processor has no instructions for it
  double gb_per_second = 0;  ///< of a = b + s c over arrays far larger than the caches, counting three accesses
};

/// Seconds of the fastest of `runs` calls, after one that is not counted.
template <class F>
double fastest(int runs, F&& f) {
  using Clock = std::chrono::steady_clock;
  f();
  double best = 1e30;
  for (int i = 0; i < runs; ++i) {
    const auto begin = Clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

/// Values in (−scale, scale), from a block that repeats: filling gigabytes must not take longer than the benchmark.
template <class T>
Tensor<cpu::Device, T> random_tensor(cpu::Device& dev, Index rows, Index cols, std::uint64_t key, double scale = 1) {
  constexpr std::size_t prime = 65521;  // so that no two rows begin alike
  Tensor<cpu::Device, T> tensor(dev, rows, cols);
  std::vector<T> block(std::min(prime, static_cast<std::size_t>(tensor.size())));
  Random random(key);
  for (T& value : block) value = T(static_cast<float>(scale * (2 * static_cast<double>(random.uniform()) - 1)));
  T* const target = tensor.view().data();
  const auto size = static_cast<std::size_t>(tensor.size());
  for (std::size_t at = 0; at < size; at += block.size())
    std::memcpy(static_cast<void*>(target + at), block.data(), std::min(block.size(), size - at) * sizeof(T));
  return tensor;
}

/// GFLOP/s of x Wᵀ for x (2048, 2048) and W (2048, 2048) in T, summed in Accum<T>: no strides, no edges.
template <class T>
double product_limit(cpu::Device& dev, int runs = 8) {
  constexpr Index n = 2048;
  const auto x = random_tensor<T>(dev, n, n, 1), w = random_tensor<T>(dev, n, n, 2);
  Tensor<cpu::Device, Accum<T>> y(dev, n, n);
  const double seconds = fastest(runs, [&] { kernel::gemm(dev, kernel::Form::nt, x.view(), w.view(), y.view()); });
  return 2e-9 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / seconds;
}

/// GB/s of a = b + s c. What the hardware reads before it writes is not counted.
inline double bandwidth_limit(cpu::Device& dev, int runs = 5) {
  constexpr Index size = Index{1} << 25;  // three arrays of 128 MiB
  const auto b = random_tensor<float>(dev, 1, size, 3), c = random_tensor<float>(dev, 1, size, 4);
  Tensor<cpu::Device, float> a(dev, 1, size);
  float* const to = a.view().data();
  const float *const left = b.view().data(), *const right = c.view().data();
  const double seconds = fastest(runs, [&] {
    dev.parallel_for(size, 1, [&](Index begin, Index end) {
      LORA_SIMD
      for (Index i = begin; i < end; ++i) to[i] = left[i] + 0.5f * right[i];
    });
  });
  return 1e-9 * 3 * sizeof(float) * static_cast<double>(size) / seconds;
}

inline Limits measure_limits(cpu::Device& dev) {
  return {product_limit<float>(dev), product_limit<bf16>(dev), bandwidth_limit(dev)};
}

}  // namespace lora::forecast
