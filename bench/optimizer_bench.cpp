// AdamW over an adapter's numbers. Bytes: gradient, value, m and v read, the last three written, 4 each.

#include "report.hpp"

namespace {

using namespace lora;
using bench::D;

void adamw(benchmark::State& state, Index size) {
  D& dev = bench::device();
  const auto grad = bench::random_tensor<float>(dev, 1, size, 1);
  auto value = bench::random_tensor<float>(dev, 1, size, 2);
  Tensor<D, float> m(dev, 1, size), v(dev, 1, size);
  kernel::fill(dev, m.view(), 0.0);
  kernel::fill(dev, v.view(), 0.0);
  kernel::AdamWStep step{.learning_rate = 1e-4, .weight_decay = 0.01};
  const bench::Clock clock;
  for ([[maybe_unused]] auto iteration : state) {
    kernel::adamw<float>(dev, step, grad.view(), value.view(), m.view(), v.view());
    ++step.step;
  }
  bench::report_bytes(state, clock, 28 * static_cast<double>(size));
}

}  // namespace

int main(int argc, char** argv) {
  return lora::bench::benchmark_main(argc, argv, [] {
    for (const Index size : {Index{1} << 14, Index{1} << 18, Index{1} << 22, Index{1} << 25})
      lora::bench::add_benchmark(lora::concat("adamw/", size), [=](benchmark::State& state) { adamw(state, size); });
  });
}
