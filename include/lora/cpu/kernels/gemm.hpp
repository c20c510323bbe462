#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "lora/core/precision.hpp"
#include "lora/cpu/runtime/device.hpp"
#include "lora/cpu/vectors/onednn.hpp"
#include "lora/cpu/vectors/stored_row.hpp"
#include "lora/cpu/vectors/tile_layout.hpp"
#include "lora/kernel/gemm.hpp"

namespace lora::cpu {

/// The engines for matrix products, tried in order: the first that supports the element type is used.
enum class GemmEngine {
  onednn,  ///< float; bf16 where the processor has instructions for it
  eigen,   ///< every type, in tiles of Eigen's vectors; bf16 as pairs where the build has them, else through float
};

struct GemmEngines {
  std::vector<GemmEngine> order {
#if defined(LORA_WITH_ONEDNN)
    GemmEngine::onednn,
#endif
        GemmEngine::eigen
  };
};

/// The device's list of engines, which tests cut down to the one under test.
inline std::vector<GemmEngine>& gemm_engines(Device& dev) { return dev.state<GemmEngines>().order; }

template <class T>
bool takes(GemmEngine engine) {
  if (engine == GemmEngine::eigen) return true;
#if defined(LORA_WITH_ONEDNN)
  if constexpr (std::same_as<T, bf16>) {
    static const bool has = OneDnn::has_bf16();
    return has;
  } else {
    return std::same_as<T, float>;
  }
#else
  return false;
#endif
}

/// The engine that computes products of T on this device.
template <class T>
GemmEngine gemm_engine(Device& dev) {
  for (const GemmEngine engine : gemm_engines(dev))
    if (takes<T>(engine)) return engine;
  fail<DeviceError>("[gemm] none of this device's engines takes the element type");
}

/// True where the processor has instructions for products of bf16; elsewhere float is faster.
inline bool has_bf16_products(Device& dev) {
  if (gemm_engine<bf16>(dev) == GemmEngine::onednn) return true;
#if defined(LORA_BF16_PAIRS)
  return true;
#else
  return false;
#endif
}

/// For a model that is stored as `stored`: bfloat16 where that is its own and the processor has instructions for it.
inline Precision preferred_precision(Device& dev, DType stored) {
  return stored == DType::bf16 && has_bf16_products(dev) ? Precision::bfloat16 : Precision::float32;
}

/// For a program's first lines: "oneDNN 2.6.3, bfloat16 in hardware".
inline std::string describe_products(Device& dev) {
  std::string engine = concat("Eigen ", EIGEN_WORLD_VERSION, ".", EIGEN_MAJOR_VERSION, ".", EIGEN_MINOR_VERSION);
#if defined(LORA_WITH_ONEDNN)
  if (gemm_engine<float>(dev) == GemmEngine::onednn) engine = "oneDNN " + OneDnn::version();
#endif
  return engine + (has_bf16_products(dev) ? ", bfloat16 in hardware" : ", bfloat16 through float32");
}

namespace detail {

/// Products in tiles of c: a thread packs the operands of a tile and multiplies them in its cache. Each element is
/// summed in the same order in every tile, so that bits depend on neither threads nor tiles.
template <class L, class T, class Out>
class TiledGemm {
 public:
  using A = Accum<T>;
  using Word = typename L::Word;
  static constexpr Index largest_tile = 192;
  static constexpr Index tile_depth = 128 * L::pairing;  ///< of the inner extent

  kernel::Form form;
  View<Device, const T> a, b;
  View<Device, Out> c;
  Index depth;
  A alpha;
  bool accumulate;

  void run(Device& dev) const {
    Index tile = largest_tile;
    const auto tiles = [&] { return parts(c.rows(), tile) * parts(c.cols(), tile); };
    while (tile > 48 && tiles() < 3 * dev.threads() && tiles() < parts(c.rows(), 48) * parts(c.cols(), 48)) tile /= 2;
    tile = std::min(tile, padded(std::max(c.rows(), c.cols())));
    Arena::Scope scope(dev.arena());
    const Index words = tile * (padded(std::min(depth, tile_depth)) / L::pairing);
    const auto operands = scratch<Word>(dev, dev.threads(), 3 * words);
    const auto sums = scratch<A>(dev, dev.threads(), tile * tile);
    const Index across = parts(c.cols(), tile);
    dev.parallel_items(tiles(), [&](Index item) {
      const int thread = omp_get_thread_num();
      Word* const left = operands.row(thread);
      form_tile(item / across * tile, item % across * tile, tile, left, left + words, left + 2 * words,
                sums.row(thread));
    });
  }

 private:
  static Index parts(Index extent, Index tile) { return (extent + tile - 1) / tile; }

  void form_tile(Index i, Index j, Index tile, Word* left, Word* right, Word* spare, A* sums) const {
    const Index m = std::min(tile, c.rows() - i), n = std::min(tile, c.cols() - j), wide = padded(n);
    constexpr Index panel = 2 * L::lanes;  // of b, small enough for the L1 cache
    for (Index k = 0; k < depth; k += tile_depth) {
      const Index count = std::min(tile_depth, depth - k), words = parts(count, L::pairing);
      const auto [a_row, a_word] = lay_left(i, m, k, count, left);
      lay_right(j, n, k, count, spare, right);
      for (Index p = 0; p < n; p += panel)
        tile_product<L>(padded(m, 8), left, a_row, a_word, right + p, wide, sums + p, wide, k > 0,
                        whole(words, std::min(panel, n - p)));
    }
    for (Index r = 0; r < m; ++r) {
      const A* const from = sums + r * wide;
      Out* const to = c.row(i + r) + j;
      if (accumulate) {
        LORA_SIMD
        for (Index s = 0; s < n; ++s) to[s] = narrowed<Out>(static_cast<A>(to[s]) + alpha * from[s]);
      } else {
        LORA_SIMD
        for (Index s = 0; s < n; ++s) to[s] = narrowed<Out>(alpha * from[s]);
      }
    }
  }

  /// op(a), rows [i, i + m), inner [k, k + count); returns the strides of its rows and words.
  std::pair<Index, Index> lay_left(Index i, Index m, Index k, Index count, Word* target) const {
    if (form == kernel::Form::tn) {
      const auto row = [&](Index r) { return a.row(k + r) + i; };
      L::stacked(count, padded(count, L::pairing), m, padded(m), row, target);
      return {1, padded(m)};
    }
    const auto row = [&](Index r) { return a.row(i + r) + k; };
    L::rows(m, padded(m, 8), count, padded(count), row, target);
    return {padded(count) / L::pairing, 1};
  }

  /// op(b), inner [k, k + count), columns [j, j + n), in rows of padded(n) words.
  void lay_right(Index j, Index n, Index k, Index count, Word* spare, Word* target) const {
    if (form == kernel::Form::nt) {
      L::transposed(b.row(j) + k, b.stride(), n, count, padded(count), spare, target, padded(n));
    } else {
      const auto row = [&](Index r) { return b.row(k + r) + j; };
      L::stacked(count, padded(count, L::pairing), n, padded(n), row, target);
    }
  }
};

/// c = sums + bias (+ c if accumulate), rounded once, for a tile of c. The bias, which may be null, is added in place.
template <class T>
void store_sums(View<Device, Accum<T>> sums, const Accum<T>* bias, View<Device, T> c, bool accumulate) {
  using A = Accum<T>;
  for (Index i = 0; i < c.rows(); ++i) {
    A* const from = sums.row(i);
    T* const to = c.row(i);
    if (bias != nullptr) {
      LORA_SIMD
      for (Index j = 0; j < c.cols(); ++j) from[j] += bias[j];
    }
    if (accumulate) {
      LORA_SIMD
      for (Index j = 0; j < c.cols(); ++j) to[j] = narrowed<T>(static_cast<A>(to[j]) + from[j]);
    } else {
      LORA_SIMD
      for (Index j = 0; j < c.cols(); ++j) to[j] = narrowed<T>(from[j]);
    }
  }
}

#if defined(LORA_WITH_ONEDNN)
template <class T>
ProductKey product_key(const kernel::ProductTerm<Device, T>& term, Index c_row, DType out) {
  const bool a_t = term.form == kernel::Form::tn, b_t = term.form == kernel::Form::nt;
  return {.m = term.rows(),
          .n = term.cols(),
          .k = term.depth(),
          .a_row = a_t ? 1 : term.a.stride(),
          .a_col = a_t ? term.a.stride() : 1,
          .b_row = b_t ? 1 : term.b.stride(),
          .b_col = b_t ? term.b.stride() : 1,
          .c_row = c_row,
          .alpha = 1,
          .accumulate = false,
          .in = dtype_of<T>,
          .out = out};
}

template <class T, class Out>
bool gemm_by_onednn(Device& dev, const kernel::ProductTerm<Device, T>& term, View<Device, Out> c, double alpha,
                    bool accumulate) {
  ProductKey key = product_key(term, c.stride(), dtype_of<Out>);
  key.alpha = static_cast<float>(alpha);
  key.accumulate = accumulate;
  return dev.state<OneDnn>().run(dev, key, term.a.data(), term.b.data(), c.data());
}

/// A sum of products in tiles that stay in a core's cache until they are rounded.
template <class T>
bool sum_by_onednn(Device& dev, kernel::ProductTerms<Device, T> terms, View<Device, const Accum<T>> bias,
                   View<Device, T> c, bool accumulate) {
  std::vector<OneDnn::Term> products;
  for (const auto& term : terms)
    products.push_back({product_key(term, 0, dtype_of<Accum<T>>), term.a.data(), term.b.data()});
  return dev.state<OneDnn>().run_sum(
      dev, products, [&](Index i, Index j, Index rows, Index cols, std::byte* sums, Index stride) {
        const View<Device, Accum<T>> tile(reinterpret_cast<Accum<T>*>(sums), rows, cols, stride);
        store_sums<T>(tile, bias.empty() ? nullptr : bias.data() + j, c.row_slice(i, rows).col_slice(j, cols),
                      accumulate);
      });
}
#endif

}  // namespace detail
}  // namespace lora::cpu

namespace lora::kernel {

/// Same bits for the same operands, strides and number of threads.
template <>
struct Gemm<cpu::Device> {
  template <class T, class Out>
  static void run(cpu::Device& dev, Form form, View<cpu::Device, const T> a, View<cpu::Device, const T> b,
                  View<cpu::Device, Out> c, double alpha, bool accumulate);

  template <class T>
  static void sum(cpu::Device& dev, ProductTerms<cpu::Device, T> terms, View<cpu::Device, const Accum<T>> bias,
                  View<cpu::Device, T> c, bool accumulate);
};

template <class T, class Out>
void Gemm<cpu::Device>::run(cpu::Device& dev, Form form, View<cpu::Device, const T> a, View<cpu::Device, const T> b,
                            View<cpu::Device, Out> c, double alpha, bool accumulate) {
  if (c.rows() == 0 || c.cols() == 0) return;
  const Index depth = form == Form::tn ? a.rows() : a.cols();
  if (depth == 0) {
    if (!accumulate)
      for (Index i = 0; i < c.rows(); ++i) std::fill_n(c.row(i), c.cols(), Out(0.0f));
    return;
  }
  switch (cpu::gemm_engine<T>(dev)) {
    case cpu::GemmEngine::onednn:
#if defined(LORA_WITH_ONEDNN)
      if constexpr (std::same_as<T, float> || std::same_as<T, bf16>)
        if (cpu::detail::gemm_by_onednn(dev, ProductTerm<cpu::Device, T>{form, a, b}, c, alpha, accumulate)) return;
#endif
      [[fallthrough]];
    case cpu::GemmEngine::eigen:
      cpu::detail::with_layout<T>([&]<class L>() {
        cpu::detail::TiledGemm<L, T, Out>{form, a, b, c, depth, static_cast<Accum<T>>(alpha), accumulate}.run(dev);
      });
      return;
  }
}

template <class T>
void Gemm<cpu::Device>::sum(cpu::Device& dev, ProductTerms<cpu::Device, T> terms,
                            View<cpu::Device, const Accum<T>> bias, View<cpu::Device, T> c, bool accumulate) {
  using D = cpu::Device;
  if (c.rows() == 0 || c.cols() == 0) return;
#if defined(LORA_WITH_ONEDNN)
  if constexpr (std::same_as<T, bf16>)
    if (cpu::gemm_engine<T>(dev) == cpu::GemmEngine::onednn &&
        cpu::detail::sum_by_onednn<T>(dev, terms, bias, c, accumulate))
      return;
#endif
  constexpr Index most_rows = 512;  // whose sums still lie in cache when they are rounded
  for (Index i = 0; i < c.rows(); i += most_rows) {
    const Index rows = std::min(most_rows, c.rows() - i);
    const Arena::Scope scope(dev.arena());
    const View<D, Accum<T>> sums = scratch<Accum<T>>(dev, rows, c.cols());
    bool first = true;
    for (const ProductTerm<D, T>& term : terms) {
      const View<D, const T> a =
          term.form == Form::tn ? term.a.col_slice(i, rows) : View<D, const T>(term.a.row_slice(i, rows));
      run(dev, term.form, a, term.b, sums, 1.0, !first);
      first = false;
    }
    dev.parallel_for(rows, cpu::rows_per_task(c.cols()), [&](Index begin, Index end) {
      cpu::detail::store_sums<T>(sums.row_slice(begin, end - begin), bias.empty() ? nullptr : bias.data(),
                                 c.row_slice(i + begin, end - begin), accumulate);
    });
  }
}

}  // namespace lora::kernel
