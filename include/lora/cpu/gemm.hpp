#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "lora/cpu/device.hpp"
#include "lora/cpu/onednn.hpp"
#include "lora/cpu/stored_row.hpp"
#include "lora/cpu/tile_layout.hpp"
#include "lora/kernel/gemm.hpp"

namespace lora::cpu {

/// Who forms a product. Each is asked in turn; the first that takes the element type does it.
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

/// The device's list, to be read or changed: a test leaves only the engine that it means.
inline std::vector<GemmEngine>& gemm_engines(Device& dev) { return dev.part<GemmEngines>().order; }

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

/// Who forms products of T on this device.
template <class T>
GemmEngine gemm_engine(Device& dev) {
  for (const GemmEngine engine : gemm_engines(dev))
    if (takes<T>(engine)) return engine;
  fail<DeviceError>("[gemm] none of this device's engines takes the element type");
}

/// True where products of bf16 run on instructions made for it; elsewhere float is faster.
inline bool has_bf16_products(Device& dev) {
  if (gemm_engine<bf16>(dev) == GemmEngine::onednn) return true;
#if defined(LORA_BF16_PAIRS)
  return true;
#else
  return false;
#endif
}

/// "oneDNN 2.6.3, bfloat16 in hardware", what a program says at its start.
inline std::string describe_products(Device& dev) {
  std::string engine = concat("Eigen ", EIGEN_WORLD_VERSION, ".", EIGEN_MAJOR_VERSION, ".", EIGEN_MINOR_VERSION);
#if defined(LORA_WITH_ONEDNN)
  if (gemm_engine<float>(dev) == GemmEngine::onednn) engine = "oneDNN " + OneDnn::version();
#endif
  return engine + (has_bf16_products(dev) ? ", bfloat16 in hardware" : ", bfloat16 through float32");
}

namespace detail {

/// Products in tiles of c: a thread lays the operands of one tile out and multiplies them where they are cached. The
/// sum of one element is formed in the same order in every tile, so that bits depend on neither threads nor tiles.
template <class L, class T, class Out>
class TiledGemm {
 public:
  using A = Accum<T>;
  using Word = typename L::Word;
  static constexpr Index largest_tile = 192;
  static constexpr Index tile_words = 128;  ///< of the inner extent
  static constexpr Index tile_depth = tile_words * L::pairing;

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
    Arena::Scope scope(dev.arena());
    const Index words = tile * tile_words;
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
    constexpr Index panel = 2 * L::lanes;  // of b, small enough for the first cache
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

#if defined(LORA_WITH_ONEDNN)
template <class T, class Out>
bool gemm_by_onednn(Device& dev, kernel::Form form, View<Device, const T> a, View<Device, const T> b,
                    View<Device, Out> c, Index depth, double alpha, bool accumulate) {
  const bool a_t = form == kernel::Form::tn, b_t = form == kernel::Form::nt;
  const ProductKey key{.m = c.rows(),
                       .n = c.cols(),
                       .k = depth,
                       .a_row = a_t ? 1 : a.stride(),
                       .a_col = a_t ? a.stride() : 1,
                       .b_row = b_t ? 1 : b.stride(),
                       .b_col = b_t ? b.stride() : 1,
                       .c_row = c.stride(),
                       .alpha = static_cast<float>(alpha),
                       .accumulate = accumulate,
                       .in = dtype_of<T>,
                       .out = dtype_of<Out>};
  return dev.part<OneDnn>().run(dev, key, a.data(), b.data(), c.data());
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
          if (cpu::detail::gemm_by_onednn(dev, form, a, b, c, depth, alpha, accumulate)) return;
#endif
        [[fallthrough]];
      case cpu::GemmEngine::eigen:
        cpu::detail::with_layout<T>([&]<class L>() {
          cpu::detail::TiledGemm<L, T, Out>{form, a, b, c, depth, static_cast<Accum<T>>(alpha), accumulate}.run(dev);
        });
        return;
    }
  }
};

}  // namespace lora::kernel
