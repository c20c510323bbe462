// The matrix products of one projection with its adapter, for the projections of three model sizes:
//   frozen              y = x Wᵀ and dx = dy W
//   sum                 y = x Wᵀ + h Bᵀ and dx = dy W + dh A, rounded once, as in bfloat16
//   low_rank_forward    h = s x Aᵀ, y += h Bᵀ
//   low_rank_backward   dh = s dy B, B.grad += hᵀ dy, A.grad += dhᵀ x, dx += dh A
//   low_rank_gradients  h, dh and both gradients: what is left where the update rides in a decoded W
// all in the layouts that nn::LoraLinear uses (B lies transposed).

#include <vector>

#include "report.hpp"

namespace {

using namespace lora;
using bench::D;
using kernel::Form;

struct Projection {
  const char* name;
  Index in, out;
};

// What repeats is left out: o_proj has q_proj's shape, v_proj k_proj's, up_proj gate_proj's.
constexpr Projection projections[] = {
    {"0.5B_q", 896, 896},  {"0.5B_k", 896, 128},  {"0.5B_gate", 896, 4864},  {"0.5B_down", 4864, 896},
    {"7B_q", 3584, 3584},  {"7B_k", 3584, 512},   {"7B_gate", 3584, 18944},  {"7B_down", 18944, 3584},
    {"32B_q", 5120, 5120}, {"32B_k", 5120, 1024}, {"32B_gate", 5120, 27648}, {"32B_down", 27648, 5120},
};
constexpr Index rows = 1024;

double product(Index m, Index n, Index k) {
  return 2 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

template <class T>
void frozen(benchmark::State& state, const Projection& p) {
  D& dev = bench::device();
  const auto x = bench::random_tensor<T>(dev, rows, p.in, 1), dy = bench::random_tensor<T>(dev, rows, p.out, 2);
  const auto w = bench::random_tensor<T>(dev, p.out, p.in, 3);
  Tensor<D, T> y(dev, rows, p.out);
  Tensor<D, Accum<T>> dx(dev, rows, p.in);
  const bench::Clock clock;
  for ([[maybe_unused]] auto iteration : state) {
    kernel::gemm(dev, Form::nt, x.view(), w.view(), y.view());
    kernel::gemm(dev, Form::nn, dy.view(), w.view(), dx.view());
  }
  bench::report_flops<T>(state, clock, 2 * product(rows, p.out, p.in));
}

template <class T>
void sum(benchmark::State& state, const Projection& p, Index rank) {
  D& dev = bench::device();
  const auto x = bench::random_tensor<T>(dev, rows, p.in, 1), dy = bench::random_tensor<T>(dev, rows, p.out, 2);
  const auto w = bench::random_tensor<T>(dev, p.out, p.in, 3), h = bench::random_tensor<T>(dev, rows, rank, 4);
  const auto a = bench::random_tensor<T>(dev, rank, p.in, 5), b = bench::random_tensor<T>(dev, rank, p.out, 6);
  Tensor<D, T> y(dev, rows, p.out), dx(dev, rows, p.in);
  const std::vector<kernel::ProductTerm<D, T>> forward{{Form::nt, x.view(), w.view()}, {Form::nn, h.view(), b.view()}};
  const std::vector<kernel::ProductTerm<D, T>> backward{{Form::nn, dy.view(), w.view()},
                                                        {Form::nn, h.view(), a.view()}};
  const bench::Clock clock;
  for ([[maybe_unused]] auto iteration : state) {
    kernel::sum_of_products<D, T>(dev, forward, {}, y.view());
    kernel::sum_of_products<D, T>(dev, backward, {}, dx.view());
  }
  bench::report_flops<T>(state, clock, 2 * product(rows, p.out, p.in) + product(rows, rank, p.in + p.out));
}

template <class T>
void low_rank_forward(benchmark::State& state, const Projection& p, Index rank) {
  D& dev = bench::device();
  const auto x = bench::random_tensor<T>(dev, rows, p.in, 1);
  const auto a = bench::random_tensor<T>(dev, rank, p.in, 2), b = bench::random_tensor<T>(dev, rank, p.out, 3);
  Tensor<D, T> h(dev, rows, rank);
  auto y = bench::random_tensor<T>(dev, rows, p.out, 4);
  const bench::Clock clock;
  for ([[maybe_unused]] auto iteration : state) {
    kernel::gemm(dev, Form::nt, x.view(), a.view(), h.view());
    kernel::gemm(dev, Form::nn, h.view(), b.view(), y.view(), 1e-3, true);
  }
  bench::report_flops<T>(state, clock, product(rows, rank, p.in + p.out));
}

template <class T>
void low_rank_backward(benchmark::State& state, const Projection& p, Index rank) {
  D& dev = bench::device();
  const auto x = bench::random_tensor<T>(dev, rows, p.in, 1), dy = bench::random_tensor<T>(dev, rows, p.out, 2);
  const auto a = bench::random_tensor<T>(dev, rank, p.in, 3), b = bench::random_tensor<T>(dev, rank, p.out, 4);
  const auto h = bench::random_tensor<T>(dev, rows, rank, 5);
  Tensor<D, T> dh(dev, rows, rank);
  auto a_grad = bench::random_tensor<Accum<T>>(dev, rank, p.in, 6);
  auto b_grad = bench::random_tensor<Accum<T>>(dev, rank, p.out, 7);
  auto dx = bench::random_tensor<Accum<T>>(dev, rows, p.in, 8);
  const kernel::LowRankTerm<D, T> term{dy.view(), b.view(), b_grad.view(), 2.0};
  const bench::Clock clock;
  for ([[maybe_unused]] auto iteration : state) {
    kernel::low_rank_backward<D, T>(dev, h.view(), {&term, 1}, dh.view());
    kernel::gemm(dev, Form::tn, dh.view(), x.view(), a_grad.view(), 1.0, true);
    kernel::gemm(dev, Form::nn, dh.view(), a.view(), dx.view(), 1.0, true);
  }
  bench::report_flops<T>(state, clock, 2 * product(rows, rank, p.in + p.out));
}

/// The same with nothing kept of forward, where the update rides in the frozen products.
template <class T>
void low_rank_gradients(benchmark::State& state, const Projection& p, Index rank) {
  D& dev = bench::device();
  const auto x = bench::random_tensor<T>(dev, rows, p.in, 1), dy = bench::random_tensor<T>(dev, rows, p.out, 2);
  const auto a = bench::random_tensor<T>(dev, rank, p.in, 3), b = bench::random_tensor<T>(dev, rank, p.out, 4);
  auto a_grad = bench::random_tensor<Accum<T>>(dev, rank, p.in, 6);
  auto b_grad = bench::random_tensor<Accum<T>>(dev, rank, p.out, 7);
  const kernel::LowRankTerm<D, T> term{dy.view(), b.view(), b_grad.view(), 2.0};
  const bench::Clock clock;
  for ([[maybe_unused]] auto iteration : state)
    kernel::low_rank_gradients<D, T>(dev, x.view(), a.view(), a_grad.view(), {&term, 1});
  bench::report_flops<T>(state, clock, 2 * product(rows, rank, p.in + p.out));
}

template <class T>
void add_all() {
  for (const Projection& p : projections) {
    const std::string end = concat("/", bench::type_name<T>, "/", p.name);
    bench::add_benchmark("frozen" + end, [=](benchmark::State& state) { frozen<T>(state, p); });
    for (Index rank = 4; rank <= 128; rank *= 2) {
      if constexpr (!std::is_same_v<T, Accum<T>>)
        bench::add_benchmark(concat("sum", end, "/r", rank), [=](benchmark::State& state) { sum<T>(state, p, rank); });
      bench::add_benchmark(concat("low_rank_forward", end, "/r", rank),
                           [=](benchmark::State& state) { low_rank_forward<T>(state, p, rank); });
      bench::add_benchmark(concat("low_rank_backward", end, "/r", rank),
                           [=](benchmark::State& state) { low_rank_backward<T>(state, p, rank); });
      if constexpr (std::is_same_v<T, Accum<T>>)
        bench::add_benchmark(concat("low_rank_gradients", end, "/r", rank),
                             [=](benchmark::State& state) { low_rank_gradients<T>(state, p, rank); });
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return lora::bench::benchmark_main(argc, argv, [] {
    add_all<float>();
    add_all<lora::bf16>();
  });
}
