// What measuring costs: one span of a profile, and one that nobody wants, in a tree like that of a step with 30 layers.
// Times are of a whole step of 30 × 60 spans; ns_per_span is what one takes.

#include "lora/cpu/runtime/device.hpp"
#include "lora/tensor/profile_scope.hpp"
#include "report.hpp"

namespace {

using namespace lora;

constexpr Index layers = 30, kernels = 60;

// The names of a layer's kernels come in the same order in each.
constexpr const char* names[] = {"rms_norm", "convert", "gemm", "rope", "attention", "gated_unit", "gemm", "convert"};

void one_step(cpu::Device& dev) {
  const ProfileScope step(dev, Profile::Kind::step, "step");
  const ProfileScope phase(dev, Profile::Kind::phase, "forward");
  for (Index i = 0; i < layers; ++i) {
    const ProfileScope layer(dev, Profile::Kind::layer, "layer", i);
    for (Index k = 0; k < kernels; ++k) {
      const ProfileScope kernel(dev, "family", names[static_cast<std::size_t>(k) % std::size(names)], 1, 1);
      benchmark::ClobberMemory();
    }
  }
}

void add(const char* name, bool on, Index traced_steps) {
  bench::add_benchmark(name, [=](benchmark::State& state) {
    Profile::Limits limits;
    limits.traced_steps = traced_steps;
    Profile profile(limits);
    cpu::Device dev(1);
    dev.set_profile(on ? &profile : nullptr);
    benchmark::DoNotOptimize(&dev);
    const bench::Clock clock;
    for ([[maybe_unused]] auto iteration : state) one_step(dev);
    state.counters["ns_per_span"] = 1e9 * clock.seconds(state) / static_cast<double>(2 + layers * (1 + kernels));
  });
}

}  // namespace

int main(int argc, char** argv) {
  return lora::bench::benchmark_main(argc, argv, [] {
    add("off", false, 0);
    add("on", true, 0);
    add("on, all steps traced", true, Index{1} << 40);
  });
}
