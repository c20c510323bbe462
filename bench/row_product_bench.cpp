// Products of decoding: one row or a few, by a weight as it is stored. Bytes: the weight read once.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "report.hpp"

namespace {

using namespace lora;
using bench::D;

/// A weight of a projection of a model of 0.5B to 7B, too large for most caches.
constexpr Index outputs = 4864, inputs = 3584;

void row_product(benchmark::State& state, DType dtype, Index rows) {
  D& dev = bench::device();
  std::vector<std::byte> bytes(StoredView<D>(nullptr, dtype, outputs, inputs).bytes());
  std::uint32_t random = 1;
  for (std::byte& byte : bytes) {  // with exponents neither so small nor so large that a number is not a usual one
    random = random * 1664525 + 1013904223;
    byte = static_cast<std::byte>((random >> 24 & 0x3B) | 0x20);
  }
  const StoredView<D> weight(bytes.data(), dtype, outputs, inputs);
  const auto x = bench::random_tensor<float>(dev, rows, inputs, 1);
  Tensor<D, float> y(dev, rows, outputs);
  const bench::Clock clock;
  for ([[maybe_unused]] auto iteration : state) kernel::row_product<D, float>(dev, x.view(), weight, y.view());
  bench::report_bytes(state, clock, static_cast<double>(weight.bytes()));
}

void add_all() {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0,
                            DType::q5_1, DType::q4_k, DType::q5_k, DType::q6_k})
    for (const Index rows : {1, 2, 4, 8})
      bench::add_benchmark(concat("row_product/", name_of(dtype), "/", rows),
                           [=](benchmark::State& state) { row_product(state, dtype, rows); });
}

}  // namespace

int main(int argc, char** argv) { return lora::bench::benchmark_main(argc, argv, add_all); }
