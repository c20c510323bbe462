#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <vector>

#include "lora/ascend/kernels/elementwise.hpp"
#include "lora/kernel/reduce.hpp"

namespace lora::kernel {

template <>
struct Reduce<ascend::Device> {
  using D = ascend::Device;

  template <class T>
  static void block_sums_of_squares(D& dev, View<D, const T> x, View<D, float> out) {
    const Index most = std::max<Index>(1, dev.settings().chunks.squared / sum_block);
    const Index whole = x.cols() / sum_block;
    for (Index block = 0; block < whole; block += most) {
      const Index count = std::min(most, whole - block);
      sum_squares(dev, View<D, const T>(x.data() + block * sum_block, count, sum_block), out.col_slice(block, count));
    }
    if (const Index rest = x.cols() - whole * sum_block; rest > 0)
      sum_squares(dev, View<D, const T>(x.data() + whole * sum_block, 1, rest), out.col_slice(whole, 1));
  }

  template <class T>
  static void column_sums(D& dev, View<D, const T> x, View<D, Accum<T>> out) {
    if (x.size() == 0) return;
    const Arena::Scope scope(dev.arena());
    const View<D, float> sums = scratch<float>(dev, 1, x.cols());
    reduce<T>(dev, ascend::aligned(dev, x), {0}, ascend::vector(sums));
    Elementwise<D>::convert(dev, View<D, const float>(sums), out, 1, true);
  }

  template <class T>
  static void sum(D& dev, View<D, const T> x, View<D, float> out) {
    if (x.size() == 0) return;
    const Arena::Scope scope(dev.arena());
    const View<D, float> total = scratch<float>(dev, 1, 1);
    reduce<T>(dev, ascend::aligned(dev, x), {0, 1}, ascend::Operand(total.data(), ascend::ACL_FLOAT, {}, {}));
    Elementwise<D>::convert(dev, View<D, const float>(total), out, 1, true);
  }

 private:
  template <class T>
  static void reduce(D& dev, View<D, const T> x, const std::vector<std::int64_t>& dims, const ascend::Operand& out) {
    ascend::launch(dev, dev.toolkit().operators.reduce_sum, x, dims, false, ascend::ACL_FLOAT, out);
  }

  template <class T>
  static void sum_squares(D& dev, View<D, const T> x, View<D, float> out) {
    const Arena::Scope scope(dev.arena());
    const View<D, float> squares = scratch<float>(dev, x.rows(), x.cols());
    if constexpr (std::same_as<T, float>) {
      ascend::launch(dev, dev.toolkit().operators.mul, x, x, squares);
    } else {
      Elementwise<D>::convert(dev, x, squares, 1, false);  // narrow squares would be rounded
      ascend::launch(dev, dev.toolkit().operators.mul, squares, squares, squares);
    }
    ascend::write_aligned(dev, out, false, true,
                          [&](View<D, float> place) { reduce<float>(dev, squares, {1}, ascend::vector(place)); });
  }
};

}  // namespace lora::kernel
