#pragma once

#if defined(LORA_WITH_ONEDNN)

#  include <cstddef>
#  include <functional>
#  include <memory>
#  include <string>
#  include <vector>

#  include "lora/core/scalar.hpp"
#  include "lora/cpu/runtime/device.hpp"

namespace lora::cpu {

/// The key of a prepared product.
struct ProductKey {
  Index m, n, k;
  Index a_row, a_col, b_row, b_col, c_row;  ///< strides of op(a) (M, K) and op(b) (K, N); columns of c are adjacent
  float alpha;
  bool accumulate;
  DType in, out;
  bool alone = false;  ///< for one thread, while others compute other tiles

  friend bool operator==(const ProductKey&, const ProductKey&) = default;
};

/// Matrix products prepared by oneDNN, one for each exact shape, since its kernels for extents known only at run time
/// are far slower. Holds a bounded number, dropping the one not used for longest; each is about 120 KB of machine code.
/// Memory that a product asks for while it runs comes from the arena; kernels that pack operands take a few MB of their
/// own besides.
///
/// oneDNN gives each thread an equal share and waits for the slowest, and cores are seldom equally fast: hosts are
/// shared, and some processors mix fast and slow cores. Large products are therefore cut into tiles of one thread each,
/// which the threads take one by one.
class OneDnn {
 public:
  static constexpr std::size_t capacity = 256;

  OneDnn();
  ~OneDnn();
  OneDnn(const OneDnn&) = delete;
  OneDnn& operator=(const OneDnn&) = delete;

  /// Whether the processor has AVX-512, and oneDNN may use it.
  static bool has_avx512();

  /// True where the processor has instructions for products of bf16; elsewhere they are emulated, slower than float32.
  static bool has_bf16();

  static std::string version();

  /// c = alpha · op(a) op(b)  (+ c if accumulate). Returns false where oneDNN has only its reference implementation for
  /// these strides.
  bool run(Device& dev, ProductKey key, const void* a, const void* b, void* c);

  /// A product of a sum.
  struct Term {
    ProductKey key;
    const void *a, *b;
  };

  /// Takes the sums of a tile: store(first row, first column, rows, columns, sums, columns in a row of sums).
  using Store = std::function<void(Index, Index, Index, Index, std::byte*, Index)>;

  /// Computes a sum of products of equal extents by tiles, in float32: a thread sums up all products of a tile and
  /// calls store. Returns false where that is not supported, or not faster.
  bool run_sum(Device& dev, const std::vector<Term>& terms, const Store& store);

  std::size_t prepared() const;
  /// Of the products that are kept, those for which oneDNN has only its reference implementation: none that a step of
  /// training needs may be among them.
  std::size_t references() const;

  /// The implementation that computes this product where it is not cut.
  std::string implementation(const ProductKey& key);

 private:
  class Products;  // in oneDNN's own types, whose header is parsed with the definitions alone
  std::unique_ptr<Products> products_;
};

}  // namespace lora::cpu

#  ifndef LORA_COMPILED
#    include "lora/cpu/vectors/onednn.ipp"
#  endif
#endif
