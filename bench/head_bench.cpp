// The head with its cross entropy on labeled rows: loss alone (evaluation) and loss with dx (training), the weight
// stored as computed, and stored in bf16 but computed in f32. FLOPs: 2 V E per row for each of the two products.

#include <memory>
#include <vector>

#include "lora/nn/head.hpp"
#include "report.hpp"

namespace {

using namespace lora;
using bench::D;

struct Size {
  const char* name;
  Index vocabulary, width;
};

constexpr Size sizes[] = {{"49152x576", 49152, 576}, {"151936x896", 151936, 896}, {"152064x3584", 152064, 3584}};

template <class T, class Stored>
void head_loss(benchmark::State& state, const Size& size, Index rows, bool gradient) {
  D& dev = bench::device();
  const auto weight =
      std::make_shared<Tensor<D, Stored>>(bench::random_tensor<Stored>(dev, size.vocabulary, size.width, 1, 0.03));
  const nn::Head<D, T> head(
      nn::Weight<D>(StoredView<D>(weight->view().data(), dtype_of<Stored>, size.vocabulary, size.width), weight),
      dev.tiling());
  const auto x = bench::random_tensor<T>(dev, rows, size.width, 2);
  Tensor<D, T> dx = gradient ? Tensor<D, T>(dev, rows, size.width) : Tensor<D, T>();
  std::vector<std::int32_t> ids(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(i * 7919 % static_cast<std::size_t>(size.vocabulary));
  const auto labels = tensor_of<std::int32_t>(dev, ids, 1, rows);
  Tensor<D, Accum<T>> told(dev, 3, rows);
  const nn::LossRows<D, T> out{told.view().row_slice(0, 1), told.view().row_slice(1, 1), told.view().row_slice(2, 1)};
  const bench::Clock clock;
  for ([[maybe_unused]] auto iteration : state)
    head.loss(dev, x.view(), labels.view(), 1 / static_cast<double>(rows), dx.view(), out);
  bench::report_flops<T>(state, clock,
                         (gradient ? 4 : 2) * static_cast<double>(rows) * static_cast<double>(size.vocabulary) *
                             static_cast<double>(size.width));
}

template <class T, class Stored>
void add_all(const char* types) {
  for (const Size& size : sizes)
    for (const Index rows : {Index{64}, Index{512}, Index{2048}})
      for (const bool gradient : {false, true})
        bench::add_benchmark(concat(gradient ? "head_loss_and_dx/" : "head_loss/", types, "/", size.name, "/", rows),
                             [=](benchmark::State& state) { head_loss<T, Stored>(state, size, rows, gradient); });
}

}  // namespace

int main(int argc, char** argv) {
  return lora::bench::benchmark_main(argc, argv, [] {
    add_all<float, float>("f32");
    add_all<float, lora::bf16>("f32_from_bf16");
    add_all<lora::bf16, lora::bf16>("bf16");
  });
}
