#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "lora/doctor/trial.hpp"
#include "lora/kernel/gemm.hpp"
#include "lora/kernel/low_rank.hpp"
#include "lora/kernel/quantize.hpp"

namespace lora::doctor::detail {

template <kernel::Form form, bool wide, bool adds>
inline constexpr auto product = []<class D, class T>(Trial<D, T>& t) {
  const Index m = t.sizes.rows, n = t.sizes.out, k = t.sizes.width;
  const View<D, const T> a = form == kernel::Form::tn ? t.apart(k, m) : t.apart(m, k);
  const View<D, const T> b = form == kernel::Form::nt ? t.values(n, k) : t.values(k, n);
  const double alpha = adds ? 0.5 : 1;
  const auto run = [&](auto c) {
    t.launch([&] { kernel::gemm(t.dev, form, a, b, c, alpha, adds); });
    t.result("c", c, product_bound);
  };
  if constexpr (wide) {
    run(adds ? t.sums(m, n) : t.sums_room(m, n));
  } else {
    run(t.apart(m, n));
  }
};

template <bool adds>
inline constexpr auto sum_of_products = []<class D, class T>(Trial<D, T>& t) {
  const Index m = t.sizes.rows, n = t.sizes.out, k = t.sizes.width, r = t.sizes.rank;
  const View<D, const T> x = t.values(m, k), w = t.values(n, k), h = t.apart(m, r), b = t.values(r, n);
  const View<D, const Accum<T>> bias = t.sums(1, n);
  const View<D, T> y = t.values(m, n);
  const kernel::ProductTerm<D, T> terms[] = {{kernel::Form::nt, x, w}, {kernel::Form::nn, h, b}};
  t.launch([&] { kernel::sum_of_products<D, T>(t.dev, terms, bias, y, adds); });
  t.result("y", y, product_bound);
};

inline constexpr auto low_rank_backward = []<class D, class T>(Trial<D, T>& t) {
  const Index n = t.sizes.rows, r = t.sizes.rank;
  const Index outs[] = {t.sizes.out, t.sizes.out / 2};
  std::vector<kernel::LowRankTerm<D, T>> terms;
  const View<D, const T> h = t.values(n, 2 * r);
  for (const Index out : outs) terms.push_back({t.apart(n, out), t.values(r, out), t.sums(r, out), 2});
  const View<D, T> dh = t.room(n, 2 * r);
  t.launch([&] { kernel::low_rank_backward<D, T>(t.dev, h, terms, dh); });
  t.result("dh", dh, product_bound);
  t.result("db", terms[0].db, product_bound);
  t.result("db 2", terms[1].db, product_bound);
};

inline constexpr auto low_rank_gradients = []<class D, class T>(Trial<D, T>& t) {
  const Index n = t.sizes.rows, r = t.sizes.rank, width = t.sizes.width;
  const Index outs[] = {t.sizes.out, t.sizes.out / 2};
  std::vector<kernel::LowRankTerm<D, T>> terms;
  const View<D, const T> x = t.values(n, width), a = t.values(2 * r, width);
  const View<D, Accum<T>> da = t.sums(2 * r, width);
  for (const Index out : outs) terms.push_back({t.values(n, out), t.values(r, out), t.sums(r, out), 2});
  t.launch([&] { kernel::low_rank_gradients<D, T>(t.dev, x, a, da, terms); });
  t.result("da", da, product_bound);
  t.result("db", terms[0].db, product_bound);
};

inline constexpr auto decode = []<class D, class T>(Trial<D, T>& t) {
  const StoredView<D> w = t.stored(t.sizes.out, t.sizes.width);
  const View<D, T> y = t.room(t.sizes.out, t.sizes.width);
  t.launch([&] { kernel::decode<D, T>(t.dev, w, y); });
  t.result("y", y, {0, 0});
};

inline constexpr auto decode_blocks = []<class D, class T>(Trial<D, T>& t) {
  if (!D::decodes(DType::q8_0)) return;  // the host does, wherever the weight goes
  const StoredView<D> w = t.stored_blocks(t.sizes.out, t.sizes.width);
  const View<D, T> y = t.room(t.sizes.out, t.sizes.width);
  t.launch([&] { kernel::decode<D, T>(t.dev, w, y); });
  t.result("y", y, {2, 2});
};

inline constexpr auto decode_with_update = []<class D, class T>(Trial<D, T>& t) {
  using A = Accum<T>;
  const StoredView<D> w = t.stored(t.sizes.out, t.sizes.width);
  const View<D, const A> b = t.sums(t.sizes.rank, t.sizes.out), a = t.sums(t.sizes.rank, t.sizes.width);
  const View<D, A> y = t.sums_room(t.sizes.out, t.sizes.width);
  t.launch([&] { kernel::decode_with_update<D, A>(t.dev, w, b, a, y); });
  t.sum_result("y", y, 64);
};

/// What is too large for float16 becomes infinite, and NaN stays in its row.
inline constexpr auto non_finite_products = []<class D, class T>(Trial<D, T>& t) {
  const Index k = t.sizes.width, n = 32;
  std::vector<double> rows;
  for (Index i = 0; i < 4 * k; ++i) rows.push_back(i / k == 1 ? 200 : 0.25);
  rows[static_cast<std::size_t>(2 * k + 5)] = std::numeric_limits<double>::quiet_NaN();
  rows[static_cast<std::size_t>(3 * k + 7)] = -std::numeric_limits<double>::infinity();
  const View<D, const T> a = t.template given<T>(4, k, rows),
                         b = t.template given<T>(n, k, std::vector<double>(static_cast<std::size_t>(n * k), 200));
  const View<D, T> c = t.room(4, n);
  t.launch([&] { kernel::gemm(t.dev, kernel::Form::nt, a, b, c); });
  t.result("c", c, product_bound);
};

}  // namespace lora::doctor::detail
