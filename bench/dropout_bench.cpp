// What an NPU's host does for dropout: masks are drawn there, on all threads, for 2,048 tokens and the inputs of a
// projection of 0.5B, 7B and 32B models.

#include <numeric>
#include <vector>

#include "lora/ascend/kernels/dropout_mask.hpp"
#include "report.hpp"

namespace {

using namespace lora;

void draw(benchmark::State& state, Index cols, int threads) {
  constexpr Index rows = 2048;
  std::vector<std::int32_t> places(rows, 3), positions(rows);
  std::iota(positions.begin(), positions.end(), 0);
  const Index elements = rows * cols;
  std::vector<std::uint8_t> bits(static_cast<std::size_t>(ascend::dropout_mask_bytes(elements)));
  const bench::Clock clock;
  for ([[maybe_unused]] auto iteration : state) {
    ascend::draw_dropout_mask({0.1, 0x5EED}, places, positions, cols, threads, bits);
    benchmark::ClobberMemory();
  }
  state.counters["ns/element"] = 1e9 * clock.seconds(state) / static_cast<double>(elements);
  state.counters["mask_GB/s"] = 1e-9 * static_cast<double>(bits.size()) / clock.seconds(state);
}

}  // namespace

int main(int argc, char** argv) {
  return lora::bench::benchmark_main(argc, argv, [] {
    for (const Index cols : {Index{896}, Index{3584}, Index{18944}, Index{27648}, Index{3583}})
      for (int threads = 1; threads <= lora::bench::device().threads(); threads *= 2)
        lora::bench::add_benchmark(
            lora::concat("dropout_mask/", cols, "/", threads, threads == 1 ? " thread" : " threads"),
            [=](benchmark::State& state) { draw(state, cols, threads); });
  });
}
