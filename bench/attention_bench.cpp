// Causal attention, forward and backward: plain and grouped heads, one long sequence or many short ones, and ragged
// batches as chat data gives them. FLOPs: 4 C per pair of rows that see each other and head forward, 10 C backward.

#include <memory>
#include <vector>

#include "report.hpp"

namespace {

using namespace lora;
using bench::D;
using kernel::Segment;

struct Heads {
  const char* name;
  Index heads, kv_heads, width;
};

constexpr Heads all_heads[] = {
    {"plain_16x64", 16, 16, 64},
    {"grouped_14_2x64", 14, 2, 64},    // Qwen2.5-0.5B
    {"grouped_28_4x128", 28, 4, 128},  // Qwen2.5-7B
};

/// Sequences of these lengths, end to end.
std::vector<Segment> end_to_end(const std::vector<Index>& lengths) {
  std::vector<Segment> segments;
  Index at = 0;
  for (const Index length : lengths) {
    segments.push_back({at, at + length});
    at += length;
  }
  return segments;
}

template <class T>
struct Operands {
  Operands(D& dev, const Heads& h, Index rows)
      : q(bench::random_tensor<T>(dev, rows, h.heads * h.width, 1)),
        k(bench::random_tensor<T>(dev, rows, h.kv_heads * h.width, 2)),
        v(bench::random_tensor<T>(dev, rows, h.kv_heads * h.width, 3)),
        out(dev, rows, h.heads * h.width) {}
  Tensor<D, T> q, k, v, out;
};

kernel::AttentionShape shape_of(const Heads& h) {
  return {h.heads, h.kv_heads, h.width, 1 / std::sqrt(static_cast<double>(h.width))};
}

template <class T>
void forward(benchmark::State& state, const Heads& h, const std::vector<Segment>& segments) {
  D& dev = bench::device();
  Operands<T> x(dev, h, segments.back().end);
  const bench::Clock clock;
  for ([[maybe_unused]] auto iteration : state)
    kernel::attention<D, T>(dev, shape_of(h), x.q.view(), x.k.view(), x.v.view(), segments, segments, x.out.view(),
                            nullptr);
  bench::report_flops<T>(state, clock,
                         4 * static_cast<double>(h.heads * h.width) * kernel::visible_pairs(segments, segments));
}

template <class T>
void backward(benchmark::State& state, const Heads& h, const std::vector<Segment>& segments) {
  D& dev = bench::device();
  const Index rows = segments.back().end;
  Operands<T> x(dev, h, rows);
  const auto dout = bench::random_tensor<T>(dev, rows, h.heads * h.width, 4);
  Tensor<D, T> dq(dev, rows, h.heads * h.width), dk(dev, rows, h.kv_heads * h.width), dv(dev, rows, dk.cols());
  const std::size_t mark = dev.arena().mark();
  auto saved = kernel::save_attention<T>(dev, rows, h.heads);
  kernel::attention<D, T>(dev, shape_of(h), x.q.view(), x.k.view(), x.v.view(), segments, segments, x.out.view(),
                          &saved);
  const bench::Clock clock;
  for ([[maybe_unused]] auto iteration : state)
    kernel::attention_backward<D, T>(dev, shape_of(h), x.q.view(), x.k.view(), x.v.view(), x.out.view(), segments,
                                     saved, dout.view(), dq.view(), dk.view(), dv.view());
  dev.arena().release(mark);
  bench::report_flops<T>(state, clock,
                         10 * static_cast<double>(h.heads * h.width) * kernel::visible_pairs(segments, segments));
}

template <class T>
void add(const std::string& what, const Heads& h, const std::vector<Segment>& segments) {
  const std::string end = concat("/", bench::type_name<T>, "/", h.name, "/", what);
  bench::add_benchmark("attention_forward" + end, [=](benchmark::State& state) { forward<T>(state, h, segments); });
  bench::add_benchmark("attention_backward" + end, [=](benchmark::State& state) { backward<T>(state, h, segments); });
}

template <class T>
void add_all() {
  for (const Heads& h : all_heads) {
    for (Index length = 128; length <= 16384; length *= 2) {
      const Index sequences = std::max<Index>(1, 2048 / length);
      add<T>(concat(sequences, "x", length), h,
             end_to_end(std::vector<Index>(static_cast<std::size_t>(sequences), length)));
    }
    add<T>("ragged_1800", h, end_to_end({131, 402, 96, 214, 178, 305, 167, 307}));
    add<T>("ragged_4096", h, end_to_end({17, 1900, 3, 811, 64, 1, 1300}));
  }
}

}  // namespace

int main(int argc, char** argv) {
  return lora::bench::benchmark_main(argc, argv, [] {
    add_all<float>();
    add_all<lora::bf16>();
  });
}
