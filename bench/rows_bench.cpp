// The kernels that go over rows once: norms, rotation, SwiGLU. Bytes: every operand read or written once.

#include <vector>

#include "report.hpp"

namespace {

using namespace lora;
using bench::D;

constexpr Index rows = 8192;

template <class T>
double bytes_of(Index elements) {
  return static_cast<double>(elements) * static_cast<double>(sizeof(T));
}

/// groups = 1: a layer's norm; otherwise the norm of every head.
template <class T>
void rms_norm(benchmark::State& state, Index groups, Index width, bool backward) {
  D& dev = bench::device();
  const Index columns = groups * width;
  const auto x = bench::random_tensor<T>(dev, rows, columns, 1), dy = bench::random_tensor<T>(dev, rows, columns, 2);
  const auto weight = bench::random_tensor<Accum<T>>(dev, 1, width, 3);
  Tensor<D, T> y(dev, rows, columns), dx(dev, rows, columns);
  Tensor<D, Accum<T>> rstd(dev, rows, groups);
  kernel::rms_norm<D, T>(dev, x.view(), weight.view(), 1e-6, y.view(), rstd.view());
  const auto rstd_read = View<D, const Accum<T>>(rstd.view());
  const bench::Clock clock;
  for ([[maybe_unused]] auto iteration : state) {
    if (backward) {
      kernel::rms_norm_backward<D, T>(dev, x.view(), weight.view(), rstd_read, dy.view(), dx.view(), false, y.view(),
                                      1e-6);
    } else {
      kernel::rms_norm<D, T>(dev, x.view(), weight.view(), 1e-6, y.view(), rstd.view());
    }
  }
  bench::report_bytes(state, clock,
                      (backward ? 4 : 2) * bytes_of<T>(rows * columns) + bytes_of<Accum<T>>(rows * groups));
}

template <class T>
void rope(benchmark::State& state, Index heads, Index width) {
  D& dev = bench::device();
  constexpr Index positions = 2048;
  auto x = bench::random_tensor<T>(dev, rows, heads * width, 1);
  const auto cos = bench::random_tensor<Accum<T>>(dev, positions, width / 2, 2, 0.7);
  const auto sin = bench::random_tensor<Accum<T>>(dev, positions, width / 2, 3, 0.7);
  std::vector<std::int32_t> places(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = static_cast<std::int32_t>(i % positions);
  const auto place = tensor_of<std::int32_t>(dev, places, 1, rows);
  const bench::Clock clock;
  for ([[maybe_unused]] auto iteration : state)  // there and back, so that values stay as they were
    for (const auto rotation : {kernel::Rotation::forward, kernel::Rotation::inverse})
      kernel::rope<D, T>(dev, x.view(), cos.view(), sin.view(), place.view(), rotation, x.view());
  bench::report_bytes(state, clock, 2 * (2 * bytes_of<T>(rows * heads * width) + bytes_of<Accum<T>>(rows * width)));
}

template <class T>
void swiglu(benchmark::State& state, Index width, bool backward) {
  D& dev = bench::device();
  const auto gate_up = bench::random_tensor<T>(dev, rows, 2 * width, 1, 4);
  const auto dy = bench::random_tensor<T>(dev, rows, width, 2);
  Tensor<D, T> y(dev, rows, width), d_gate_up(dev, rows, 2 * width);
  const bench::Clock clock;
  for ([[maybe_unused]] auto iteration : state) {
    if (backward) {
      kernel::gated_unit_backward<D, T>(dev, kernel::Gate::silu, gate_up.view(), dy.view(), d_gate_up.view(), y.view());
    } else {
      kernel::gated_unit<D, T>(dev, kernel::Gate::silu, gate_up.view(), y.view());
    }
  }
  bench::report_bytes(state, clock, (backward ? 6 : 3) * bytes_of<T>(rows * width));
}

template <class T>
void add_all() {
  const auto name = [](const char* what, auto... extents) {
    return concat(what, "/", bench::type_name<T>, concat("/", extents)...);
  };
  for (const bool backward : {false, true}) {
    const char* const norm = backward ? "rms_norm_backward" : "rms_norm";
    for (const Index width : {Index{576}, Index{896}, Index{3584}, Index{5120}})
      bench::add_benchmark(name(norm, width), [=](benchmark::State& state) { rms_norm<T>(state, 1, width, backward); });
    for (const Index heads : {Index{16}, Index{64}})
      bench::add_benchmark(name(norm, heads, 128),
                           [=](benchmark::State& state) { rms_norm<T>(state, heads, 128, backward); });
    for (const Index width : {Index{1536}, Index{4864}, Index{18944}})
      bench::add_benchmark(name(backward ? "swiglu_backward" : "swiglu", width),
                           [=](benchmark::State& state) { swiglu<T>(state, width, backward); });
  }
  bench::add_benchmark(name("rope", 14, 64), [](benchmark::State& state) { rope<T>(state, 14, 64); });
  bench::add_benchmark(name("rope", 40, 128), [](benchmark::State& state) { rope<T>(state, 40, 128); });
}

}  // namespace

int main(int argc, char** argv) {
  return lora::bench::benchmark_main(argc, argv, [] {
    add_all<float>();
    add_all<lora::bf16>();
  });
}
