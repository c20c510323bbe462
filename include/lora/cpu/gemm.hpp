#pragma once

#include <string>
#include <vector>

#include "lora/cpu/device.hpp"
#include "lora/cpu/eigen.hpp"
#include "lora/cpu/onednn.hpp"
#include "lora/kernel/gemm.hpp"

namespace lora::cpu {

/// Who forms a product. Each is asked in turn; the first that takes the element type does it.
enum class GemmEngine {
  onednn,  ///< float; bf16 where the processor has instructions for it
  eigen,   ///< every type; bf16 through float tiles
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

/// "oneDNN 2.6.3 (float32, bfloat16)", what a program says at its start.
inline std::string describe_products(Device& dev) {
  const auto name = [](GemmEngine engine) -> std::string {
#if defined(LORA_WITH_ONEDNN)
    if (engine == GemmEngine::onednn) return "oneDNN " + OneDnn::version();
#endif
    return engine == GemmEngine::eigen
               ? concat("Eigen ", EIGEN_WORLD_VERSION, ".", EIGEN_MAJOR_VERSION, ".", EIGEN_MINOR_VERSION)
               : "none";
  };
  const GemmEngine wide = gemm_engine<float>(dev), narrow = gemm_engine<bf16>(dev);
  if (wide == narrow && wide == GemmEngine::onednn) return name(wide) + " (float32, bfloat16)";
  return name(wide) + " (float32), " + name(narrow) + " (bfloat16 through float32)";
}

namespace detail {

template <class T>
using MatrixMap = Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>, Eigen::Unaligned,
                             Eigen::OuterStride<>>;
template <class T>
using MatrixOutMap = Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>, Eigen::Unaligned,
                                Eigen::OuterStride<>>;

/// Keeps Eigen from starting threads of its own inside work that is already split.
class SingleThreaded {
 public:
  SingleThreaded() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  SingleThreaded(const SingleThreaded&) = delete;
  SingleThreaded& operator=(const SingleThreaded&) = delete;
  ~SingleThreaded() { omp_set_num_threads(before_); }

 private:
  int before_;
};

/// c (m, n) += or = op(a) op(b), on one thread. Pointers stand at the tile's first elements.
template <class A>
void eigen_tile(kernel::Form form, const A* a, Index lda, const A* b, Index ldb, A* c, Index ldc, Index m, Index n,
                Index k, A alpha, bool accumulate) {
  MatrixOutMap<A> out(c, m, n, Eigen::OuterStride<>(ldc));
  if (!accumulate) out.setZero();
  const bool a_t = form == kernel::Form::tn, b_t = form == kernel::Form::nt;
  const MatrixMap<A> left(a, a_t ? k : m, a_t ? m : k, Eigen::OuterStride<>(lda));
  const MatrixMap<A> right(b, b_t ? n : k, b_t ? k : n, Eigen::OuterStride<>(ldb));
  if (a_t) {
    out.noalias() += alpha * (left.transpose() * right);
  } else if (b_t) {
    out.noalias() += alpha * (left * right.transpose());
  } else {
    out.noalias() += alpha * (left * right);
  }
}

/// Where element (row, k) of op(a), or (k, row) of op(b), lies.
inline Index offset(bool k_is_row, Index ld, Index row, Index k) { return k_is_row ? k * ld + row : row * ld + k; }

/// rows x cols of bf16 widened into a dense tile.
inline void widen_tile(const bf16* source, Index ld, Index rows, Index cols, float* target) {
  for (Index i = 0; i < rows; ++i) {
    const bf16* const from = source + i * ld;
    float* const to = target + i * cols;
#pragma omp simd
    for (Index j = 0; j < cols; ++j) to[j] = static_cast<float>(from[j]);
  }
}

/// Products by Eigen: c in tiles of fixed extents, so that its bits do not depend on the number of threads.
template <class T, class Out>
void gemm_by_eigen(Device& dev, kernel::Form form, View<Device, const T> a, View<Device, const T> b,
                   View<Device, Out> c, Index depth, double alpha, bool accumulate) {
  using A = Accum<T>;
  constexpr Index tile = 192, tile_k = 512;
  const Index down = (c.rows() + tile - 1) / tile, across = (c.cols() + tile - 1) / tile;
  const bool a_k_is_row = form == kernel::Form::tn, b_k_is_row = form != kernel::Form::nt;
  const SingleThreaded eigen_stays_on_its_thread;
  Arena::Scope scope(dev.arena());
  // Per thread: a tile each of op(a), op(b) and c in float.
  constexpr Index piece = 2 * tile * tile_k + tile * tile;
  A* tiles = nullptr;
  if constexpr (!std::same_as<T, A>) tiles = scratch<A>(dev, dev.threads(), piece).data();

  dev.parallel_items(down * across, [&](Index item) {
    const Index i = item / across * tile, j = item % across * tile;
    const Index m = std::min(tile, c.rows() - i), n = std::min(tile, c.cols() - j);
    Out* const target = c.data() + i * c.stride() + j;
    if constexpr (std::same_as<T, A>) {
      eigen_tile<A>(form, a.data() + offset(a_k_is_row, a.stride(), i, 0), a.stride(),
                    b.data() + offset(b_k_is_row, b.stride(), j, 0), b.stride(), target, c.stride(), m, n, depth,
                    static_cast<A>(alpha), accumulate);
    } else {
      A* const wide_a = tiles + omp_get_thread_num() * piece;
      A* const wide_b = wide_a + tile * tile_k;
      A* const wide_c = wide_b + tile * tile_k;
      for (Index k = 0; k < depth; k += tile_k) {
        const Index kk = std::min(tile_k, depth - k);
        const Index a_cols = a_k_is_row ? m : kk, b_cols = b_k_is_row ? n : kk;
        widen_tile(a.data() + offset(a_k_is_row, a.stride(), i, k), a.stride(), a_k_is_row ? kk : m, a_cols, wide_a);
        widen_tile(b.data() + offset(b_k_is_row, b.stride(), j, k), b.stride(), b_k_is_row ? kk : n, b_cols, wide_b);
        eigen_tile<A>(form, wide_a, a_cols, wide_b, b_cols, wide_c, n, m, n, kk, static_cast<A>(alpha), k > 0);
      }
      for (Index row = 0; row < m; ++row) {
        Out* const to = target + row * c.stride();
        const A* const from = wide_c + row * n;
#pragma omp simd
        for (Index col = 0; col < n; ++col)
          to[col] = static_cast<Out>(accumulate ? static_cast<A>(to[col]) + from[col] : from[col]);
      }
    }
  });
}

#if defined(LORA_WITH_ONEDNN)
template <class T, class Out>
void gemm_by_onednn(Device& dev, kernel::Form form, View<Device, const T> a, View<Device, const T> b,
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
  dev.part<OneDnn>().run(dev, key, a.data(), b.data(), c.data());
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
          cpu::detail::gemm_by_onednn(dev, form, a, b, c, depth, alpha, accumulate);
#endif
        return;
      case cpu::GemmEngine::eigen:
        cpu::detail::gemm_by_eigen(dev, form, a, b, c, depth, alpha, accumulate);
        return;
    }
  }
};

}  // namespace lora::kernel
