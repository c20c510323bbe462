#pragma once

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <type_traits>
#include <utility>

#include "lora/forecast/limits.hpp"

namespace lora::bench {

using D = cpu::Device;
using forecast::fastest;
using forecast::Limits;
using forecast::measure_limits;
using forecast::random_tensor;

/// The device that all benchmarks of a program share.
inline D& device() {
  static D dev;
  return dev;
}

/// Measured when first asked for, which `run_benchmarks` does before any benchmark.
inline const Limits& limits() {
  static const Limits measured = measure_limits(device());
  return measured;
}

template <class T>
constexpr const char* type_name = std::is_same_v<T, bf16> ? "bf16" : "f32";

/// Starts right before the loop over a benchmark's iterations, so that what it tells needs no "/s" behind it.
class Clock {
 public:
  Clock() : begin_(std::chrono::steady_clock::now()) {}
  /// Of one iteration; to be asked once they are done.
  double seconds(const benchmark::State& state) const {
    const std::chrono::duration<double> all = std::chrono::steady_clock::now() - begin_;
    return all.count() / static_cast<double>(state.iterations());
  }

 private:
  std::chrono::steady_clock::time_point begin_;
};

/// `flops` of one iteration, and their share of the limit of T's matrix products.
template <class T>
void report_flops(benchmark::State& state, const Clock& clock, double flops) {
  const double giga = 1e-9 * flops / clock.seconds(state);
  state.counters["GFLOP/s"] = giga;
  state.counters["limit_%"] = 100 * giga / (std::is_same_v<T, bf16> ? limits().bf16_gflops : limits().f32_gflops);
}

/// `bytes` that one iteration must read and write, and their share of the memory's bandwidth. More than 100 % tells
/// that caches held part of it.
inline void report_bytes(benchmark::State& state, const Clock& clock, double bytes) {
  const double giga = 1e-9 * bytes / clock.seconds(state);
  state.counters["GB/s"] = giga;
  state.counters["limit_%"] = 100 * giga / limits().gb_per_second;
}

/// Registers body(state) for wall clock time: with threads, CPU time says nothing.
template <class Body>
void add_benchmark(const std::string& name, Body body) {
  benchmark::RegisterBenchmark(name.c_str(), std::move(body))
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond)
      ->MinTime(0.2);
}

/// The body of a program's main, once its benchmarks are registered.
inline int run_benchmarks(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const auto text = [](double value) { return std::to_string(static_cast<long>(value + 0.5)); };
  benchmark::AddCustomContext("device", device().describe());
  benchmark::AddCustomContext("products", cpu::describe_products(device()));
  benchmark::AddCustomContext("limit of f32 products", text(limits().f32_gflops) + " GFLOP/s");
  benchmark::AddCustomContext("limit of bf16 products", text(limits().bf16_gflops) + " GFLOP/s");
  benchmark::AddCustomContext("limit of memory", text(limits().gb_per_second) + " GB/s");
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

/// The same, with errors of the library as one line and exit code 1.
template <class Register>
int benchmark_main(int argc, char** argv, Register&& register_all) {
  try {
    register_all();
    return run_benchmarks(argc, argv);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace lora::bench
