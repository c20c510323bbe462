// Prints what this machine reaches at best, as one JSON object: bench_limits [THREADS]

#include "lora/forecast/limits.hpp"

#include <charconv>
#include <cstdio>
#include <cstring>

int main(int argc, char** argv) {
  int threads = 0;
  if (argc > 2) {
    std::fputs("usage: bench_limits [THREADS]\n", stderr);
    return 2;
  }
  if (argc == 2) {
    const char* const end = argv[1] + std::strlen(argv[1]);
    const auto [rest, error] = std::from_chars(argv[1], end, threads);
    if (error != std::errc() || rest != end || threads < 1) {
      std::fprintf(stderr, "bench_limits: %s is no number of threads\n", argv[1]);
      return 2;
    }
  }
  try {
    lora::cpu::Device dev(threads);
    const auto limits = lora::forecast::measure_limits(dev);
    std::printf("{\"threads\": %d, \"device\": \"%s\", \"products\": \"%s\", ", dev.threads(), dev.describe().c_str(),
                lora::cpu::describe_products(dev).c_str());
    std::printf("\"float32_gflops\": %.1f, \"bfloat16_gflops\": %.1f, \"gb_per_second\": %.2f}\n", limits.f32_gflops,
                limits.bf16_gflops, limits.gb_per_second);
  } catch (const lora::Error& error) {
    std::fprintf(stderr, "bench_limits: %s\n", error.what());
    return 1;
  }
  return 0;
}
