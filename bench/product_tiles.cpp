// What it would cost to cut float32 products by their shape alone, whatever the number of threads: each product whole
// on one thread, and then by tiles of rows x columns one after the other, as shares of that time. Threads need a tile
// each at least, and some more where one is slower than the other.

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "lora/core/format.hpp"
#include "lora/cpu/kernels.hpp"
#include "lora/forecast/limits.hpp"

namespace {

using namespace lora;
using D = cpu::Device;
using kernel::Form;

struct Product {
  Form form;
  Index m, n, k;
};

const char* name_of(Form form) { return form == Form::nt ? "x Wt" : form == Form::nn ? "dy W" : "dyt x"; }

/// Rows of a training step, by W (n, k) or (k, n): projections of models of 0.5B and 7B.
std::vector<Product> products() {
  std::vector<Product> all;
  for (const Index rows : {512, 2048})
    for (const auto& [out, in] : {std::pair<Index, Index>{4864, 896}, {896, 4864}, {4608, 3584}})
      for (const Product& one :
           {Product{Form::nt, rows, out, in}, {Form::nn, rows, in, out}, {Form::tn, out, in, rows}})
        all.push_back(one);
  return all;
}

double seconds_of(D& dev, const Product& p, Index rows, Index cols) {
  const bool a_transposed = p.form == Form::tn, b_transposed = p.form == Form::nt;
  const auto a = a_transposed ? forecast::random_tensor<float>(dev, p.k, p.m, 1)
                              : forecast::random_tensor<float>(dev, p.m, p.k, 1);
  const auto b = b_transposed ? forecast::random_tensor<float>(dev, p.n, p.k, 2)
                              : forecast::random_tensor<float>(dev, p.k, p.n, 2);
  Tensor<D, float> c(dev, p.m, p.n);
  return forecast::fastest(5, [&] {
    for (Index i = 0; i < p.m; i += rows)
      for (Index j = 0; j < p.n; j += cols) {
        const Index m = std::min(rows, p.m - i), n = std::min(cols, p.n - j);
        kernel::gemm(dev, p.form, a_transposed ? a.view().col_slice(i, m) : a.view().row_slice(i, m),
                     b_transposed ? b.view().row_slice(j, n) : b.view().col_slice(j, n),
                     c.view().row_slice(i, m).col_slice(j, n));
      }
  });
}

}  // namespace

int main() {
  D dev(1);
  constexpr Index all = 1 << 20;  // rows or columns
  struct Tile {
    Index rows, cols;
  };
  const std::vector<Tile> tiles{{128, 512}, {256, 512}, {256, 1024}, {512, 512}, {512, 1024}, {128, all}, {256, all}};
  std::printf("%-6s %6s %6s %6s %9s", "", "m", "n", "k", "whole ms");
  for (const Tile& tile : tiles)
    std::printf(" %11s", concat(tile.rows, " x ", tile.cols == all ? "all" : concat(tile.cols)).c_str());
  std::printf("\n");
  for (const Product& p : products()) {
    const double whole = seconds_of(dev, p, all, all);
    std::printf("%-6s %6td %6td %6td %9.1f", name_of(p.form), p.m, p.n, p.k, 1e3 * whole);
    for (const Tile& tile : tiles) std::printf(" %11.2f", seconds_of(dev, p, tile.rows, tile.cols) / whole);
    std::printf("\n");
    std::fflush(stdout);
  }
}
